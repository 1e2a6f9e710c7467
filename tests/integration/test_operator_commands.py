"""The commands of an operator on real clusters and a bucket, with no process of ours at work but one."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Place

from formats.control.gap import RETENTION, RecordedGap
from formats.footer import SegmentOrigin
from formats.messages.delivery_checkpoint import CheckpointKey, Parked, encode_parked, encode_parked_key
from formats.segment import OffsetRange, Segment, SourcePartition
from infra.contracts.cluster import TopicPartition
from infra.kafka.cluster.admin import KafkaAdmin
from infra.local.aws import create_bucket_with_queue
from infra.local.stack import LocalStack
from infra.local.waiting import wait_until
from replicator import main
from replicator.config import load
from replicator.services.clients import Clients
from replicator.services.ingress import build_ingress
from replicator.terminal.output import DIFFERENCES
from tests.formats.messages.test_foreign_positions import ancestor
from tests.infra.cluster import Cluster
from tests.ingress.world import FORMAT, STAMP, records
from tests.integration.running import running
from tests.processes.harness import to_toml

pytestmark = pytest.mark.integration

PATIENCE = timedelta(seconds=60)
AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


class Desk:
    """An archive of region a, its topic, and the region b that delivers it."""

    def __init__(
        self, stack: LocalStack, unique: Callable[[str], str], folder: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        self.topic, bucket, queue = unique("topic"), unique("bucket"), unique("queue")
        self.checkpoints, self.copy = unique("checkpoints"), f"{self.topic}.ingress"
        self.group = unique("ingress")
        create_bucket_with_queue(stack.moto.endpoint_url, bucket, queue)
        self.a, self.b = Cluster(stack.brokers["a"]), Cluster(stack.brokers["b"])
        aws = {
            "endpoint_url": stack.moto.endpoint_url,
            "region_name": "us-east-1",
            "access_key_id": "test",
            "secret_access_key": "${SECRET}",
        }
        ingress = {
            "group_id": self.group,
            "segment_events_topic": unique("events"),
            "replication_factor": 1,
            "checkpoint_topic": self.checkpoints,
            "topic_refresh_interval": "1s",
            "sources": [{"region": "a", "topic": self.topic, "first_segment_delay": "0s"}],
        }
        self.files = {}
        for region, sections in (
            ("a", {"egress": {"group_id": unique("egress"), "topics": {self.topic: {}}}}),
            ("b", {"sqs": {"queue": queue, "wait": "1s", **aws}, "ingress": ingress}),
        ):
            tables = {
                "region": region,
                "kafka": {"bootstrap.servers": stack.brokers[region].bootstrap, "log_level": "0"},
                "s3": {"bucket": bucket, **aws},
                **sections,
            }
            self.files[region] = folder / f"{region}.toml"
            self.files[region].write_text(to_toml(tables))
        self._capsys = capsys

    def run(self, *arguments: str, region: str = "b") -> tuple[int, str]:
        """Exit code, and all that was printed."""
        with pytest.raises(SystemExit) as caught:
            main.main([*arguments, "--config", str(self.files[region])])
        out, err = self._capsys.readouterr()
        return int(caught.value.code or 0), out + err

    def asked(self, *arguments: str, region: str = "b") -> tuple[int, Any]:
        code, out = self.run(*arguments, "--json", region=region)
        return code, json.loads(out)

    def source(self, partition: int = 0) -> SourcePartition:
        return SourcePartition("a", self.topic, partition)

    def archive(self, start: int, end: int, partition: int = 0) -> None:
        segment = Segment(self.source(partition), 0, OffsetRange(start, end))
        sink = BytesIO()
        writer = FORMAT.create(sink)
        writer.write([records(range(start, end + 1))])
        writer.close(segment, SegmentOrigin(created_at=AT, writer="test", source_partition_count=2))
        with Clients(load(self.files["b"])) as reach:
            reach.store.store(segment, sink, sink.tell())

    def park(self, next_offset: int | None, partition: int = 0) -> None:
        """As an owner that died since."""
        key = CheckpointKey(self.source(partition), self.copy)
        self.b.put(self.checkpoints, encode_parked_key(key), encode_parked(Parked(next_offset, "too large", AT)))

    def positions(self) -> dict[int, int]:
        _, shown = self.asked("checkpoints", "show")
        return {int(row["source"].rpartition("/")[2]): row["next_offset"] for row in shown["checkpoints"]}


@pytest.fixture
def desk(
    stack: LocalStack,
    unique: Callable[[str], str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Desk:
    monkeypatch.setenv("SECRET", "test")
    return Desk(stack, unique, tmp_path, capsys)


def test_a_parked_partition_is_seen_skipped_and_goes_on(desk: Desk) -> None:
    code, fresh = desk.asked("status")
    assert (code, fresh["ingress"]["partitions"], fresh["egress"]) == (DIFFERENCES, [], None)
    assert "nothing of source region a has ever arrived" in "; ".join(fresh["ingress"]["problems"])
    desk.b.create(desk.copy, 2)
    desk.archive(0, 9)
    desk.archive(0, 4, partition=1)
    where = f"a/{desk.topic}/0"

    code, out = desk.run("checkpoints", "seed", where, "--offset", "4")
    assert (code, "add --yes" in out) == (0, True)
    assert desk.positions() == {}
    code, seeded = desk.asked("checkpoints", "seed", where, "--offset", "4", "--yes")
    assert (code, seeded["written"], seeded["changes"]) == (0, True, [f"{where} to {desk.copy}: none -> 4"])
    assert desk.positions() == {0: 4}

    desk.park(4)
    code, answer = desk.asked("status")
    assert code == 3
    row = next(r for r in answer["ingress"]["partitions"] if r["source"] == where)
    assert (row["checkpoint"]["next_offset"], row["checkpoint"]["author"], row["archive_end"]) == (4, "seed", 10)
    assert (row["lag"], row["parked"]["next_offset"], row["parked"]["reason"]) == (6, 4, "too large")
    code, text = desk.run("status")
    assert (code, row["parked"]["skip"] in text, row["parked"]["release"] in text) == (3, True, True)
    assert f"{where} -> {desk.copy}: parked at 4 since 2026-01-02T03:04:05+00:00: too large" in text
    code, text = desk.run("status", "--partitions")
    assert (code, f"{where} " in text) == (3, True)

    code, out = desk.run("skip", where, "5", "--reason", "poison", "--yes")
    assert (code, "parked at 4, not at 5" in out) == (1, True)
    command = shlex.split(row["parked"]["skip"])
    assert command[0] == "replicator"
    assert command[-2:] == ["--config", str(desk.files["b"])]
    code, out = desk.run(*(word.replace("TEXT", "poison") for word in command[1:-2] if word != "--yes"))
    assert (code, "would be written" in out, desk.positions()) == (0, True, {0: 4})
    code, out = desk.run(*(word.replace("TEXT", "poison") for word in command[1:-2]))
    assert (code, '"next_offset":5' in out) == (0, True), out
    assert desk.positions() == {0: 5}

    code, gaps = desk.asked("gaps")
    (gap,) = gaps["destination"]
    assert (code, gap["source"], gap["start"], gap["end"], gap["reason"]) == (3, where, 4, 4, "poison")
    assert "skipped on the way" in desk.run("gaps")[1]
    assert desk.run("skip", where, "5", "--reason", "more", "--yes")[0] == 1, "it is not parked any more"

    with closing(Consumer({**desk.b.properties, "group.id": desk.group})) as anybody:
        # groups are reset, expire, and are shared by sources: what they say is no position
        anybody.commit(offsets=[Place(desk.copy, 0, 9)], asynchronous=False)
    with running(build_ingress(load(desk.files["b"]))):
        assert wait_until(lambda: desk.positions() == {0: 10, 1: 5}, PATIENCE)
        code, out = desk.run("checkpoints", "seed", where, "--offset", "0", "--yes")
        assert (code, "1 member" in out) == (1, True)
    arrived = desk.b.records(TopicPartition(desk.copy, 0))
    assert [r.key for r in arrived] == [b"%d" % n for n in range(5, 10)]
    code, answer = desk.asked("status")
    assert (code, answer["ingress"]["problems"], sum(r["lag"] for r in answer["ingress"]["partitions"])) == (0, [], 0)


@pytest.mark.guard
@pytest.mark.long
def test_release_lets_the_owner_try_again(desk: Desk) -> None:
    desk.b.create(desk.copy, 1)
    desk.archive(0, 9)
    where = f"a/{desk.topic}/0"
    desk.b.create(desk.checkpoints, configs={"cleanup.policy": "compact"})
    desk.park(None)
    assert [r["parked"]["skip"] for r in desk.asked("status")[1]["ingress"]["partitions"]] == [None]
    assert desk.run("skip", where, "0", "--reason", "x", "--yes")[0] == 1
    assert "nothing was written" in desk.run("release", where)[1]
    assert desk.asked("status")[1]["ingress"]["partitions"][0]["parked"]
    assert desk.run("release", where, "--yes")[0] == 0
    assert not desk.asked("status")[1]["ingress"]["partitions"][0]["parked"]
    code, out = desk.run("release", where, "--yes")
    assert (code, "is not parked" in out) == (0, True)


@pytest.mark.guard
@pytest.mark.long
def test_positions_of_others_are_taken_over(desk: Desk, unique: Callable[[str], str]) -> None:
    desk.a.create(desk.topic, 2)
    desk.b.create(desk.copy, 2)
    name = f"a/{desk.topic}"

    group = unique("group")
    member = Consumer(desk.a.properties | {"group.id": group, "log_level": 0})
    member.commit(offsets=[Place(desk.topic, 0, 11), Place(desk.topic, 1, 12)], asynchronous=False)
    member.close()
    option = ["--group", group, "--source-config", str(desk.files["a"])]
    assert desk.run("checkpoints", "seed", name, *option, "--yes")[0] == 0
    assert desk.positions() == {0: 11, 1: 12}
    assert desk.run("checkpoints", "seed", name, "--group", group, "--yes")[0] == 2, "a group of which cluster?"

    ancestors = unique("ancestors")
    desk.b.create(ancestors)
    for partition, offset in ((0, 1), (1, 2), (0, 3)):
        desk.b.put(ancestors, b"%d" % partition, ancestor(offset, region="a", topic=desk.topic, partition=partition))
    assert desk.run("checkpoints", "seed", name, "--ancestor-topic", ancestors, "--yes")[0] == 0
    assert desk.positions() == {0: 4, 1: 3}

    offsets = unique("offsets")
    desk.b.create(offsets)
    for offset in (20, 30):
        key = ["MirrorSourceConnector", {"cluster": "A", "partition": 1, "topic": desk.topic}]
        desk.b.put(offsets, json.dumps(key).encode(), json.dumps({"offset": offset}).encode())
    option = ["--connect-offsets", offsets, "--yes"]
    code, out = desk.run("checkpoints", "seed", name, *option)
    assert (code, "has no position of" in out) == (1, True), "its name for the region is another"
    assert desk.run("checkpoints", "seed", name, *option, "--connect-cluster", "A")[0] == 0
    assert desk.positions() == {0: 4, 1: 31}

    desk.archive(0, 9)
    desk.archive(10, 19)
    moment = datetime.fromtimestamp(STAMP / 1000, UTC) + timedelta(milliseconds=13)
    assert desk.run("checkpoints", "seed", name, "--timestamp", moment.isoformat(), "--yes")[0] == 0
    assert desk.positions() == {0: 13, 1: 31}

    code, shown = desk.asked("checkpoints", "show", "--source", f"{name}/1")
    assert (code, [(r["next_offset"], r["author"]) for r in shown["checkpoints"]]) == (0, [(31, "seed")])
    assert desk.run("checkpoints", "seed", name, "--offset", "1", "--timestamp", "2026-01-01T00:00:00Z")[0] == 2
    code, out = desk.run("checkpoints", "seed", name, "--ancestor-topic", unique("absent"))
    assert (code, "there is no topic" in out) == (1, True)


@pytest.mark.guard
@pytest.mark.long
def test_positions_are_given_to_others(desk: Desk, unique: Callable[[str], str]) -> None:
    """What a seed reads of their topics is what delivery here had reached."""
    desk.a.create(desk.topic, 2)
    desk.b.create(desk.copy, 2)
    name = f"a/{desk.topic}"
    code, out = desk.run("checkpoints", "export", name, "--to", "connect-offsets", "--yes")
    assert (code, "nothing of it is delivered here" in out) == (2, True)
    desk.archive(0, 9)
    assert desk.run("checkpoints", "seed", f"{name}/0", "--offset", "10", "--yes")[0] == 0
    desk.archive(0, 19, partition=1)
    assert desk.run("checkpoints", "seed", f"{name}/1", "--offset", "7", "--yes")[0] == 0

    offsets, group = unique("offsets"), unique("group")
    option = ["--to", "connect-offsets", "--topic", offsets, "--connect-cluster", "A", "--group", group]
    code, shown = desk.asked("checkpoints", "export", name, *option)
    assert (code, shown["written"], [one["next_offset"] for one in shown["positions"]]) == (0, False, [10, 7])
    assert "2 records written" in desk.run("checkpoints", "export", name, *option, "--yes")[1]
    assert "0 records written" in desk.run("checkpoints", "export", "a", *option, "--yes")[1]

    admin = KafkaAdmin(desk.b.properties)
    assert admin.describe([offsets])[offsets].partition_count == 25
    assert admin.configs(offsets)["cleanup.policy"] == "compact"
    ancestors = ["--to", "ancestor", "--topic", unique("ancestors"), "--group", group]
    code, out = desk.run("checkpoints", "export", name, *ancestors, "--yes")
    assert (code, "archived up to 20" in out) == (1, True), "it cannot read our segments"
    assert desk.run("checkpoints", "seed", f"{name}/1", "--offset", "20", "--yes")[0] == 0
    assert desk.run("checkpoints", "export", name, *ancestors, "--yes")[0] == 0
    assert desk.run("checkpoints", "export", name, *option, "--yes")[0] == 0

    assert desk.run("checkpoints", "seed", name, "--offset", "0", "--yes")[0] == 0
    code, out = desk.run("checkpoints", "export", name, *ancestors, "--yes")
    assert (code, "never goes back" in out) == (1, True)
    for wanted in (["--connect-offsets", offsets, "--connect-cluster", "A"], ["--ancestor-topic", ancestors[3]]):
        assert desk.run("checkpoints", "seed", name, "--offset", "0", "--yes")[0] == 0
        assert desk.run("checkpoints", "seed", name, *wanted, "--yes")[0] == 0
        assert desk.positions() == {0: 10, 1: 20}

    for busy in (group, desk.group):
        member = Consumer(desk.b.properties | {"group.id": busy, "log_level": 0})
        member.subscribe([desk.copy])
        assert wait_until(lambda: bool(member.poll(0.1) or member.assignment()), PATIENCE)  # noqa: B023 -- called now
        code, out = desk.run("checkpoints", "export", name, *option, "--yes")
        assert (code, f"group {busy} has 1 member(s)" in out) == (1, True)
        member.close()


def test_the_archives_side(desk: Desk, unique: Callable[[str], str]) -> None:
    desk.a.create(desk.topic, 2)
    desk.a.put(desk.topic, None, b"x")
    desk.archive(0, 0)
    code, answer = desk.asked("status", region="a")
    assert (code, answer["ingress"]) == (3, None)
    assert any("replicator adopt" in problem for problem in answer["egress"]["problems"])
    code, out = desk.run("adopt", desk.topic, region="a")
    assert (code, f"a/{desk.topic} is of topic id" in out) == (0, True)
    assert desk.asked("adopt", desk.topic, region="a")[1]["place"] == desk.topic
    assert desk.run("adopt", unique("absent"), region="a")[0] == 1
    code, answer = desk.asked("status", region="a")
    assert (code, answer["egress"]["problems"]) == (0, [])

    with desk.a.producer(**{"transactional.id": unique("open")}) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.produce(desk.topic, b"x", partition=0)
        producer.flush()
        code, answer = desk.asked("status", region="a")
        (row, _) = answer["egress"]["partitions"]
        assert (code, row["stable"], row["high"], row["lag"], row["archive_end"]) == (3, 1, 2, 1, 1)
        assert row["open_transaction"]["age_seconds"] < PATIENCE.total_seconds()
        code, text = desk.run("status", "--partitions", region="a")
        assert (code, "no egress process is in group" in text) == (3, True)
        producer.abort_transaction()

    assert desk.run("gaps", region="a") == (0, "no gaps are recorded\n")
    with Clients(load(desk.files["a"])) as reach:
        kept = OffsetRange(0, 0)
        reach.control.gaps.record(
            RecordedGap(source=desk.source(), offsets=kept, reason=RETENTION, low=0, high=2, recorded_at=AT)
        )
        code, text = desk.run("gaps", region="a")
        assert (code, "1 offset removed by retention, recorded" in text) == (0, True)
        reach.control.gaps.record(
            RecordedGap(
                source=desk.source(), offsets=OffsetRange(2, 2), reason="retention", low=3, high=20, recorded_at=AT
            )
        )
    code, answer = desk.asked("gaps", region="a")
    assert (code, [(g["start"], g["end"], g["reason"]) for g in answer["source"]]) == (
        3,
        [(0, 0, RETENTION), (2, 2, "retention")],
    )
    assert desk.asked("gaps", region="b")[0] == 3, "region b reads the same archive"
    assert desk.asked("status", region="a")[1]["egress"]["partitions"][0]["recorded_gaps"] == 2
