"""Consumer groups that move to the target, beside MirrorMaker 2: how many records each reads again.

    python -m bench.offsets        writes its table of docs/mm2-comparison.md

A group stands so many records before the end of its topic, and has stopped. Both programs copy the topic while it is
written, translate the group's offset, and commit it at the target; what a consumer then reads there is compared with
what was left at the source.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from confluent_kafka import Consumer, TopicPartition

from bench import mirrormaker
from bench.behaviour import PAGE, SOURCE, TARGET, WARM_UP, described_commit, our_processes, remote, running
from bench.report import replaced
from bench.topics import QUIET, SECONDS, ClusterTopics
from infra.local.jars import KAFKA_VERSION
from infra.local.process import Process
from infra.local.stack import LocalStack
from infra.local.waiting import wait_until

BEGIN, END = "<!-- written by `make bench-mm2-offsets` -->", "<!-- end of offsets -->"
LAGS = (1_000, 10_000, 100_000)
RECORDS = 300_000
PORTION = 10_000  # records that are produced at a time
SETTLED = timedelta(seconds=15)  # without another offset of the group
NOT_COMMITTED = "no offset within two minutes"
PATIENCE = timedelta(minutes=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSyncProgram:
    """One of the two programs. `start` gets what begins the names of its topics and groups."""

    name: str
    start: Callable[[LocalStack, str], Sequence[Process]]


def ours(stack: LocalStack, word: str) -> Sequence[Process]:
    return our_processes(
        stack,
        word,
        {TARGET: SOURCE},
        policy="default",
        notified=True,
        egress={"groups": [f"^{word}[.].*"], "group_interval": "1s"},
        of_target={"groups": {"sync": True, "interval": "1s"}},
    )


def mirror_maker(stack: LocalStack, word: str) -> Sequence[Process]:
    """As shipped, but for how often it searches."""
    quick = {
        "groups": f"{word}[.].*",
        "refresh.groups.interval.seconds": "1",
        "emit.checkpoints.interval.seconds": "1",
        "sync.group.offsets.enabled": "true",
        "sync.group.offsets.interval.seconds": "1",
    }
    text = mirrormaker.properties(stack, {(SOURCE, TARGET): f"{word}[.].*"}, **quick)
    return [mirrormaker.start(stack, word, text)]


SUBJECTS = (GroupSyncProgram(name="ours", start=ours), GroupSyncProgram(name="mm2", start=mirror_maker))


def read_again(stack: LocalStack, subject: GroupSyncProgram) -> Mapping[int, str]:
    """By lag."""
    source, target = ClusterTopics(stack.brokers[SOURCE].bootstrap), ClusterTopics(stack.brokers[TARGET].bootstrap)
    topic = f"{subject.name}.orders"
    source.create(topic, 1)
    with running(subject.start(stack, subject.name)):
        source.produce(topic, 0, ["0"])
        if not wait_until(lambda: target.values(remote(topic), 0) == ["0"], WARM_UP):
            raise RuntimeError(f"{subject.name} does not replicate; see {stack.log_dir}")
        for start in range(1, RECORDS, PORTION):
            source.produce(topic, 0, [str(n) for n in range(start, min(start + PORTION, RECORDS))])
        if not wait_until(lambda: _last(target.bootstrap, remote(topic)) == RECORDS - 1, WARM_UP):
            raise RuntimeError(f"{subject.name} does not arrive at the end; see {stack.log_dir}")
        for lag in LAGS:
            _commit(source.bootstrap, _group(subject, lag), topic, RECORDS - lag)
        return {lag: _cell(target.bootstrap, remote(topic), _group(subject, lag), lag) for lag in LAGS}


def _group(subject: GroupSyncProgram, lag: int) -> str:
    return f"{subject.name}.lag-{lag}"


def _cell(bootstrap: str, topic: str, group: str, lag: int) -> str:
    """How many records the group reads again at the target, once its offset there does not change any more."""
    seen: list[int] = []

    def is_committed() -> bool:
        found = _committed(bootstrap, group, topic)
        if found is not None and found not in seen:
            seen.append(found)
        return bool(seen)

    if not wait_until(is_committed, PATIENCE):
        return NOT_COMMITTED
    count = 0
    while count != len(seen):
        count = len(seen)
        wait_until(lambda: is_committed() and len(seen) > count, SETTLED)  # noqa: B023 -- called now
    first = _value_at(bootstrap, topic, seen[-1])
    again = RECORDS - lag - first
    return f"{again:,}" if again >= 0 else f"{-again:,} skipped"


# --- clusters ---------------------------------------------------------------------------------------------------------


def _consumer(bootstrap: str, group: str) -> Consumer:
    own = {"group.id": group, "enable.auto.commit": False, "enable.partition.eof": True}
    return Consumer({"bootstrap.servers": bootstrap, **own, **QUIET})


def _commit(bootstrap: str, group: str, topic: str, offset: int) -> None:
    consumer = _consumer(bootstrap, group)
    try:
        consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    finally:
        consumer.close()


def _committed(bootstrap: str, group: str, topic: str) -> int | None:
    consumer = _consumer(bootstrap, group)
    try:
        [found] = consumer.committed([TopicPartition(topic, 0)], timeout=SECONDS)
        return found.offset if found.offset >= 0 else None
    finally:
        consumer.close()


def _last(bootstrap: str, topic: str) -> int:
    """The last value of a topic; its last offset may be a marker."""
    consumer = _consumer(bootstrap, "offsets-bench")
    try:
        _, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=SECONDS)
        values = _values(consumer, topic, max(high - 3, 0))
        return max(values, default=-1)
    finally:
        consumer.close()


def _value_at(bootstrap: str, topic: str, offset: int) -> int:
    """The first value that a consumer reads from there."""
    consumer = _consumer(bootstrap, "offsets-bench")
    try:
        return _values(consumer, topic, offset, most=1)[0]
    finally:
        consumer.close()


def _values(consumer: Consumer, topic: str, offset: int, *, most: int = 10) -> list[int]:
    consumer.assign([TopicPartition(topic, 0, offset)])
    found: list[int] = []
    while len(found) < most and (message := consumer.poll(SECONDS)) is not None and message.error() is None:
        found.append(int(message.value() or b"0"))
    return found


# --- the page ---------------------------------------------------------------------------------------------------------


def table(ours_: Mapping[int, str], theirs: Mapping[int, str], *, at: datetime, commit: str) -> str:
    lines = [
        f"One run at {commit}, {at:%Y-%m-%d %H:%M} UTC, MirrorMaker {KAFKA_VERSION}; a topic of {RECORDS:,} records.",
        "",
        "| the group's lag at the source | read again at the target, here | MirrorMaker 2 |",
        "|---|---|---|",
        *(f"| {lag:,} | {ours_[lag]} | {theirs[lag]} |" for lag in LAGS),
    ]
    return "\n".join(lines)


def with_table(page: str, text: str) -> str:
    """The page with its table replaced. Raises ValueError without the markers."""
    return replaced(page, BEGIN, END, f"{BEGIN}\n{text}\n{END}")


def main() -> None:
    mirrormaker.class_path()  # fetched before anything is measured
    found: list[Mapping[int, str]] = []
    for subject in SUBJECTS:
        with LocalStack(regions=(SOURCE, TARGET)) as stack:
            cells = read_again(stack, subject)
            print(f"{subject.name}: {cells}", flush=True)
            found.append(cells)
    text = table(*found, at=datetime.now(UTC), commit=described_commit())
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8"), text), encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
