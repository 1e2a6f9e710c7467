"""A region's broker and bucket are gone, and real consumers go on in the other region, from every kind of place that a
group can have: nothing is read again, nothing is skipped, and what is lost was printed before. Then they go back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from infra.contracts.cluster import Committed, TopicPartition
from infra.kafka.cluster.admin import KafkaAdmin
from infra.local.aws import create_bucket_with_queue, s3_client
from tests.infra.cluster import Cluster
from tests.infra.kafka_groups import commit
from tests.processes.flow import Flow
from tests.processes.group_members import Values, read_on
from tests.processes.harness import PATIENCE, A, B
from tests.processes.test_failover import egress_of, parsed
from tests.processes.test_groups_cross import produce_with_holes, values
from tests.processes.traffic import Draft, produce_all

if TYPE_CHECKING:
    from tests.processes.harness import Site, Worker

pytestmark = [pytest.mark.integration, pytest.mark.long]

DONE, DIFFERENCES = 0, 3
UNSEALED = {"max_segment_age": "1h", "max_segment_messages": 1_000_000}
HOLES, BEGINS_LATER, EMPTY, CUT_LATER = range(4)
"""Partitions: with markers and aborted records; whose first records were deleted before the archive began; without a
record; whose first records were deleted at the source once they had arrived."""
PARTITIONS = 4
ROUND = 18  # offsets of `produce_with_holes`
DELIVERED, REACH, END = ROUND, 2 * ROUND, 3 * ROUND  # of partition HOLES
ENDS = {HOLES: END, BEGINS_LATER: 6, EMPTY: 0, CUT_LATER: 6}
STANDS: Mapping[str, Mapping[int, int]] = {
    "start": {HOLES: 0, BEGINS_LATER: 0, EMPTY: 0, CUT_LATER: 0},
    "middle": {HOLES: 4, BEGINS_LATER: 4, EMPTY: 0, CUT_LATER: 5},
    "marker": {HOLES: 6, BEGINS_LATER: 3, EMPTY: 0, CUT_LATER: 4},
    "aborted": {HOLES: 8, BEGINS_LATER: 2, EMPTY: 0, CUT_LATER: 3},
    "marker-of-aborted": {HOLES: 10, BEGINS_LATER: 6, EMPTY: 0, CUT_LATER: 1},
    "delivered": {HOLES: DELIVERED, BEGINS_LATER: 5, EMPTY: 0, CUT_LATER: 6},
    "on-its-way": {HOLES: ROUND + 4, BEGINS_LATER: 6, EMPTY: 0, CUT_LATER: 6},
    "in-a-hole-on-its-way": {HOLES: ROUND + 9, BEGINS_LATER: 6, EMPTY: 0, CUT_LATER: 6},
    "all-that-arrived": {HOLES: REACH, BEGINS_LATER: 6, EMPTY: 0, CUT_LATER: 6},
    "among-what-is-lost": {HOLES: REACH + 4, BEGINS_LATER: 6, EMPTY: 0, CUT_LATER: 6},
    "end": {HOLES: END, BEGINS_LATER: 6, EMPTY: 0, CUT_LATER: 6},
    "beyond-the-end": {HOLES: END + 5, BEGINS_LATER: 8, EMPTY: 3, CUT_LATER: 9},
}
PAST_THE_LOG = "beyond-the-end"  # a consumer at the source itself would be reset


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """Region a is gone; b has what arrived."""

    site: Site
    topic: str
    target: str
    ingress: Worker
    arrived: Mapping[int, Mapping[int, bytes | None]]  # by partition and offset of a
    everything: Mapping[int, Mapping[int, bytes | None]]  # what a has when it comes back

    def group(self, word: str) -> str:
        return f"{self.site.name}.at-{word}"

    def plan(self) -> dict[str, Any]:
        return parsed(self.ingress.run("failover", "plan", "--json")[1])

    def verdicts(self, plan: Mapping[str, Any]) -> Mapping[str, Mapping[int, tuple[str, int]]]:
        """By word and partition."""
        return {
            word: {
                int(one["source"].rpartition("/")[2]): (one["verdict"], one["beyond"])
                for one in plan["groups"][self.group(word)]
            }
            for word in STANDS
        }

    def left(self, word: str) -> Values:
        """What of that which arrived the group had not read at a."""
        return {
            number: [value for at, value in self.arrived[number].items() if at >= stands]
            for number, stands in STANDS[word].items()
        }

    def left_at_a(self, word: str, read: Values) -> Values:
        """What the group has yet to read once it is back, after it had read this at b. What was deleted at a counts."""
        ever = {n: {**self.arrived[n], **self.everything[n]} for n in self.arrived}
        return {
            number: [value for at, value in ever[number].items() if at >= stands and value not in read[number]]
            for number, stands in STANDS[word].items()
        }

    def still(self, some: Sequence[bytes | None]) -> Sequence[bytes | None]:
        """Those that a has."""
        there = {value for found in self.everything.values() for value in found.values()}
        return [value for value in some if value in there]


def expected(number: int, stands: int) -> tuple[str, int]:
    """What the plan says beforehand."""
    reach = REACH if number == HOLES else ENDS[number]
    if stands > reach:
        return "beyond", stands - reach
    return ("waiting" if number == HOLES and stands > DELIVERED else "exact"), 0


@contextmanager
def region_lost(site: Site, **source: Any) -> Iterator[Lost]:
    """`source`: settings at b. Its broker runs again after the body."""
    other, queue = f"{site.name}-other", f"{site.name}-other-queue"
    create_bucket_with_queue(site.stack.moto.endpoint_url, other, queue)
    with Flow(site, partitions=PARTITIONS) as flow:
        flow.target = flow.topic if source["replication_policy"] == "identity" else f"{A}.{flow.topic}"
        at_a, places = site.bootstrap(A), [TopicPartition(flow.topic, number) for number in range(PARTITIONS)]
        admin = KafkaAdmin({"bootstrap.servers": at_a})
        produce_all(at_a, flow.topic, drafts())
        admin.delete_records({places[BEGINS_LATER]: 3})
        produce_with_holes(at_a, flow.topic)
        egress = egress_of(site, flow.topic, "egress").start()
        sync = site.sync("sync", other).start()
        ingress = site.ingress(
            "ingress", {"topic": flow.topic, **source}, bucket=other, queue=queue, session_ms=9000, preserve_wait="1s"
        ).start()
        site.wait("the first records here", lambda: flow.delivered() == 12 + 3 + 6)
        ingress.stop()
        before = records(site, A, places)
        admin.delete_records({places[CUT_LATER]: 4})

        produce_with_holes(at_a, flow.topic, 100)  # archived, and not delivered
        flow.wait_for_archive()
        egress.stop()
        arrived = {**records(site, A, places), CUT_LATER: before[CUT_LATER]}
        egress = egress_of(site, flow.topic, "egress-2", **UNSEALED).start()
        produce_with_holes(at_a, flow.topic, 200)  # seen, and never archived
        assert flow.ends() == ENDS
        lost = Lost(
            site=site,
            topic=flow.topic,
            target=flow.target,
            ingress=ingress,
            arrived=arrived,
            everything=records(site, A, places),
        )
        for word, stands in STANDS.items():
            offsets = {places[number]: Committed(offset, word) for number, offset in stands.items()}
            commit({"bootstrap.servers": at_a}, lost.group(word), offsets)
        every = {lost.group(word) for word in STANDS}
        site.wait("the last report", lambda: is_last(lost.plan(), every), PATIENCE)
        egress.kill()
        sync.stop()
        site.stack.brokers[A].stop()
        remove_all(site)
        try:
            yield lost
        finally:
            site.stack.brokers[A].restore()
        site.stop(ingress)


def is_last(plan: Mapping[str, Any], groups: set[str]) -> bool:
    return bool(plan["missing"] == END - REACH and groups <= plan["groups"].keys())


def drafts() -> Sequence[Draft]:
    """Six records in each partition that has no transactions and is not empty."""
    return [
        Draft(number, None, b"%d of %d" % (n, number), (), 1_700_000_000_000 + n)
        for number in (BEGINS_LATER, CUT_LATER)
        for n in range(6)
    ]


@pytest.mark.parametrize(
    "source",
    [
        {"replication_policy": "default"},
        {"replication_policy": "identity"},
        {"replication_policy": "default", "offsets": "preserve"},
        {"replication_policy": "identity", "offsets": "preserve"},
    ],
    ids=lambda source: "-".join(source.values()),
)
def test_consumers_go_on_from_every_kind_of_place_and_go_back(site: Site, source: Mapping[str, str]) -> None:
    with region_lost(site, **source) as lost:
        plan = lost.plan()
        assert lost.verdicts(plan) == {
            word: {number: expected(number, offset) for number, offset in stands.items()}
            for word, stands in STANDS.items()
        }
        assert (plan["missing"], plan["to_deliver"]) == (END - REACH, REACH - DELIVERED)

        lost.ingress.start()
        code, text = lost.ingress.run("failover", "execute", "--json")
        assert code == DIFFERENCES, text  # what did not arrive stays lost
        at_b = {}
        for turn, word in enumerate(STANDS):
            most = None if turn % 2 else 7  # the others stop on their way
            at_b[word] = read_on(site.bootstrap(B), lost.group(word), lost.target, PARTITIONS, PATIENCE, most=most)
            left = lost.left(word)
            assert all(left[number][: len(some)] == some for number, some in at_b[word].items()), word
            count = total(left) if most is None else min(most, total(left))
            assert total(at_b[word]) == count, word

        site.stack.brokers[A].restore()
        back = handed_over(lost)
        code, text = back.run("failback", "execute", "--from", B)
        assert "taken back" in text, text
        there = {word: lost.left_at_a(word, at_b[word]) for word in STANDS}
        gone = {word for word, some in there.items() if some[CUT_LATER] != lost.still(some[CUT_LATER])}
        assert named(text) == {f"{lost.group(word)} in {lost.topic}/{CUT_LATER}: trimmed" for word in gone}
        assert code == (DIFFERENCES if gone else DONE), text
        for word, stands in STANDS.items():
            if word == PAST_THE_LOG:
                assert site.committed(A, lost.group(word), lost.topic, PARTITIONS) == stands
                continue
            read = read_on(site.bootstrap(A), lost.group(word), lost.topic, PARTITIONS, PATIENCE)
            assert read == {number: lost.still(some) for number, some in there[word].items()}, word


def handed_over(lost: Lost) -> Worker:
    """The first half, and then what the second one runs with."""
    site = lost.site
    code, text = lost.ingress.run("failback", "execute", "--to", A, "--give-up")  # nothing was produced here
    assert "handed over, generation 1" in text, (code, text)
    assert lost.ingress.run("failback", "execute", "--to", A)[0] == DONE
    back = site.command("back", lost.ingress)
    back.write({"region": A, "kafka": {"bootstrap.servers": site.bootstrap(A)}, "s3": lost.ingress.tables["s3"]})
    return back


def named(text: str) -> set[str]:
    """What the plan says does not continue exactly."""
    return {line.removeprefix("! group ") for line in map(str.strip, text.splitlines()) if line.startswith("! ")}


def total(found: Values) -> int:
    return sum(map(len, found.values()))


def records(site: Site, region: str, places: Sequence[TopicPartition]) -> dict[int, Mapping[int, bytes | None]]:
    """By partition and offset."""
    cluster = Cluster(site.stack.brokers[region])
    return {place.partition: values(cluster.messages(place)) for place in places}


def remove_all(site: Site) -> None:
    """The site's own bucket."""
    client = s3_client(site.stack.moto.endpoint_url)
    keys = site.keys()
    for key in keys:
        client.delete_object(Bucket=site.bucket, Key=key)
    client.delete_bucket(Bucket=site.bucket)
    client.close()
