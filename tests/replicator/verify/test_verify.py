"""A verification without brokers: partitions verified elsewhere, refused requests, and what is stored as proven."""

from __future__ import annotations

import io
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, ClassVar

import pytest
from pyarrow import RecordBatch

from formats.control.archive_begin import ArchiveBegin
from formats.control.claim import TopicClaim
from formats.control.gap import RETENTION, RecordedGap
from formats.control.keys import watermarks_prefix
from formats.errors import BrokerUnavailable, ConfigError, TargetError
from formats.segment import OffsetRange, Segment, SourcePartition, format_key
from formats.topic_selection import TopicPattern
from infra.archive.proofs import ProofStore
from infra.contracts.cluster import TopicFacts, TopicPartition, Watermarks
from infra.runtime.progress import Progress
from replicator.config import Config, from_mapping
from replicator.restore.reported_ends import ReportsUnreadable
from replicator.selection import Selection
from replicator.verify.proven import Proven
from replicator.verify.report import Report, line_of, report
from replicator.verify.scope import ARCHIVE, DIRECT, TARGET, Found, VerifyScope
from replicator.verify.scope import SOURCE as SOURCE_KIND
from replicator.verify.verify import Verification
from tests.fakes.kafka_admin import FakeAdmin
from tests.ingress.world import REGION, World, records
from tests.replicator.restore.published import publish_watermarks, watermarks

CONFIG = from_mapping({"region": REGION, "kafka": {"bootstrap.servers": "b:9092"}, "s3": {"bucket": "b"}})
SELECTION = Selection(region=REGION, topics=[TopicPattern("t")])
SOURCE = SourcePartition(REGION, "t", 0)
HOUR = timedelta(hours=1)


def verification(world: World) -> Verification:
    return Verification(CONFIG, SELECTION, objects=world.objects)


def entry(source: SourcePartition, **more: Any) -> Mapping[str, Any]:
    return {"source": str(source), "kind": ARCHIVE, "equal": True, **more}


def test_partitions_verified_elsewhere_are_not_read_here() -> None:
    world = World()
    world.put(0, 9)
    asked: list[tuple[Config, Selection, VerifyScope]] = []

    def elsewhere(
        config: Config, selection: Selection, scope: VerifyScope, _: Mapping[Segment, Proven], progress: Progress
    ) -> Iterator[Found]:
        asked.append((config, selection, scope))
        progress(1, 1)
        yield entry(SOURCE, note="of a Spark task"), {}

    scope = VerifyScope(kind=ARCHIVE)
    with verification(world) as verified:
        found = verified.run([scope], elsewhere=elsewhere)
    assert [one["note"] for one in found.entries] == ["of a Spark task"]
    assert asked == [(CONFIG, SELECTION, scope)]
    assert world.objects.calls["open"] == 0


def missing(world: World, *topics: str, as_reported: bool = True, **selected: Any) -> Mapping[str, Any]:
    selection = Selection(region=REGION, topics=[TopicPattern(one) for one in topics or ("^.*",)], **selected)
    with Verification(CONFIG, selection, objects=world.objects) as verified:
        report = verified.run([VerifyScope(kind=ARCHIVE, as_reported=as_reported)])
    return {one["source"]: one["missing"] for one in report.entries}


def test_what_egress_reported_an_hour_ago_is_missing_where_no_segment_is() -> None:
    """Of a partition that lost its last segments, or all of them, and of a topic of which only the claim is left."""
    world, now = World(), datetime.now(UTC)
    for partition in (0, 1):
        world.put(0, 9, partition=partition)
    for topic in ("gone", "again"):
        claim = TopicClaim(topic_id=f"id-{topic}", cluster_id="c", number=0, claimed_at=now - 3 * HOUR)
        world.control.claims.record(REGION, topic, claim)
    later = SourcePartition(REGION, "t", 3)  # its archive begins where it ended then
    world.control.begins.record(later, ArchiveBegin(offset=7, reason="start policy", recorded_at=now))
    objects = world.objects.memory
    publish_watermarks(objects, 1, watermarks(now - 2 * HOUR, {"t": (10, 12, 5, 7), "gone": (4,), "never": (2,)}))
    publish_watermarks(objects, 2, watermarks(now - HOUR / 2, {"t": (99, 99, 99, 99), "gone": (99,)}))
    publish_watermarks(objects, 3, watermarks(now, {"u": (99,)}))
    of_t = {"a/t/0": [], "a/t/1": [[10, 11]], "a/t/2": [[0, 4]]}
    of_gone = {"a/gone/0": [[0, 3]]}
    of_never = {"a/never/0": [[0, 1]]}
    assert missing(world) == of_t | of_gone | of_never
    assert missing(world, "t") == of_t
    assert missing(world, "gone", "t") == of_t | of_gone
    assert missing(world, "never") == of_never, "which has no claim either"
    assert missing(world, "t", partitions=[2]) == {"a/t/2": [[0, 4]]}
    with pytest.raises(ConfigError, match="typo"):
        missing(world, "typo", "gone")
    # as sync fills a bucket with some topics, beside all control objects
    assert missing(world, as_reported=False) == {"a/t/0": [], "a/t/1": []}


def test_a_report_is_about_the_incarnation_that_there_was() -> None:
    world, now = World(), datetime.now(UTC)
    world.put(0, 9)
    world.put(0, 4, incarnation="id-2")
    for number, path, topic_id in ((0, "t", "id-1"), (1, "t@id-2", "id-2")):
        claimed_at = now - (5 - 2 * number) * HOUR
        claim = TopicClaim(topic_id=topic_id, cluster_id="c", number=number, claimed_at=claimed_at)
        world.control.claims.record(REGION, path, claim)
    publish_of(world, 1, "id-2", 6)
    assert missing(world) == {"a/t@id-2/0": [[5, 5]], "a/t/0": []}
    publish_of(world, 2, "id-1", 10)
    assert missing(world) == {"a/t@id-2/0": [], "a/t/0": []}, "of one that was created again meanwhile all is there"


def test_an_earlier_incarnation_is_verified_too() -> None:
    """Only the archive has it."""
    world, now = World(), datetime.now(UTC)
    first = world.put(0, 9)
    world.put(0, 4, incarnation="id-2")
    for number, path, topic_id in ((0, "t", "id-1"), (1, "t@id-2", "id-2")):
        claim = TopicClaim(topic_id=topic_id, cluster_id="c", number=number, claimed_at=now - (5 - number) * HOUR)
        world.control.claims.record(REGION, path, claim)
    damage(world, format_key("data", first))
    with verification(world) as verified:
        found = verified.run([VerifyScope(kind=ARCHIVE)])
    assert {one["source"]: one["equal"] for one in found.entries} == {"a/t@id-2/0": True, "a/t/0": False}
    assert not found.is_equal


def damage(world: World, key: str) -> None:
    memory = world.objects.memory
    data = bytearray(memory.open(key).read())
    data[len(data) // 3] ^= 0xFF
    memory.delete_many([key])
    memory.put_new(key, io.BytesIO(bytes(data)), len(data))


def test_a_report_that_cannot_be_read_is_not_taken_for_none() -> None:
    world = World()
    world.put(0, 9)
    publish_of(world, 1, "id", 20)
    (key,) = [one.key for one in world.objects.memory.list(watermarks_prefix("data", REGION))]
    damage(world, key)
    with pytest.raises(ReportsUnreadable, match="how far egress of a had archived is not known") as raised:
        missing(world)
    assert "--as-stored" in str(raised.value)
    assert missing(world, as_reported=False) == {"a/t/0": []}


def test_a_control_object_that_cannot_be_decoded_is_a_finding_of_its_partition_alone() -> None:
    world = World()
    for partition in (0, 1):
        world.put(0, 9, partition=partition)
    world.record_gap(10, 19)
    (key,) = [one.key for one in world.objects.memory.list("data/a/_control/v1/gaps/")]
    damage(world, key)
    with verification(world) as verified:
        found = verified.run([VerifyScope(kind=ARCHIVE)])
    assert {one["source"]: one["equal"] for one in found.entries} == {"a/t/0": False, "a/t/1": True}
    assert "gap" in line_of(found.entries[0])


class Cluster:
    """An admin of a cluster whose topics have three partitions of ten records."""

    refuses: ClassVar[set[str]] = set()  # topics
    stable: ClassVar[int] = 10

    def __init__(self, _: object) -> None: ...

    def watermarks(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, Watermarks]:
        return {one: Watermarks(0, 10, None) for one in partitions}

    def stable_offsets(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        return dict.fromkeys(partitions, self.stable)

    def configs(self, _: str) -> Mapping[str, str]:
        return {}

    def describe(self, names: Collection[str]) -> Mapping[str, TopicFacts]:
        if refused := self.refuses.intersection(names):
            raise TargetError(f"DESCRIBE of {refused} is not allowed")
        return {name: TopicFacts(name, "", 3) for name in names}


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> dict[int, int]:
    """Beside the archive. By the partition: how many milliseconds ago its records were written, if not a day ago."""
    ages: dict[int, int] = {}
    now_ms = time.time_ns() // 1_000_000  # once: both sides of a comparison have the same records

    def read_partition(_: object, partition: TopicPartition, low: int, end: int) -> Iterator[RecordBatch]:
        if end > Cluster.stable and partition.partition:
            raise BrokerUnavailable("an open transaction")
        if low < end:
            at = now_ms - ages.get(partition.partition, 24 * 3_600_000)
            yield records(range(low, end), stamp=at) if partition.partition else records(range(low, end))

    monkeypatch.setattr("replicator.verify.verify.KafkaAdmin", Cluster)
    monkeypatch.setattr("replicator.verify.verify.read_partition", read_partition)
    monkeypatch.setattr(Cluster, "refuses", set())
    monkeypatch.setattr(Cluster, "stable", 10)
    return ages


@pytest.mark.parametrize("kind", [SOURCE_KIND, TARGET, DIRECT])
@pytest.mark.usefixtures("cluster")
def test_partitions_with_records_of_which_the_archive_has_nothing_are_compared(kind: str) -> None:
    world = World()
    world.put(0, 9)
    is_direct = kind == DIRECT  # which compares topics alone
    assert compared(world, kind) == {"a/t/0": True, "a/t/1": is_direct, "a/t/2": is_direct}


@pytest.mark.usefixtures("cluster")
def test_an_open_transaction_of_which_nothing_is_archived_ends_no_verification() -> None:
    world = World()
    world.put(0, 6)
    Cluster.stable = 7
    assert compared(world, SOURCE_KIND) == {"a/t/0": True, "a/t/1": False, "a/t/2": False}
    Cluster.stable = 0
    assert compared(world, SOURCE_KIND)["a/t/1"] is True, "all its records are of an open transaction"


def compared(world: World, kind: str) -> Mapping[str, bool]:
    scope = VerifyScope(kind=kind, cluster=CONFIG, source_cluster=CONFIG if kind == DIRECT else None)
    with verification(world) as verified:
        return {one["source"]: one["equal"] for one in verified.run([scope]).entries}


def test_what_is_not_to_be_archived_is_not_missed_beside_the_source(cluster: dict[int, int]) -> None:
    """Neither records before the archive's begin, nor those that retention removed, nor those that are not sealed."""
    world = World()
    world.put(0, 9)
    first, second = (SourcePartition(REGION, "t", number) for number in (1, 2))
    world.control.begins.record(first, ArchiveBegin(offset=10, reason="start policy", recorded_at=world.clock.at))
    gap = partial(RecordedGap, source=second, reason=RETENTION, low=0, high=10, recorded_at=world.clock.at)
    world.control.gaps.record(gap(offsets=OffsetRange(0, 9)))
    assert compared(world, SOURCE_KIND) == {"a/t/0": True, "a/t/1": True, "a/t/2": True}
    cluster.update({1: 5000})
    world = World()
    world.put(0, 9)
    assert compared(world, SOURCE_KIND) == {"a/t/0": True, "a/t/1": True, "a/t/2": False}
    world.control.gaps.record(gap(offsets=OffsetRange(0, 3)))
    assert compared(world, SOURCE_KIND)["a/t/2"] is False, "4 to 6 are in no gap"
    damage(world, next(one.key for one in world.objects.memory.list("data/a/_control/v1/gaps/")))
    assert compared(world, SOURCE_KIND)["a/t/2"] is False, "and the others have their verdicts"


@pytest.mark.usefixtures("cluster")
def test_first_segments_that_are_missing_are_a_difference_from_the_source() -> None:
    world = World()
    world.put(5, 9)
    assert compared(world, SOURCE_KIND)["a/t/0"] is True, "as far as is known, the archive begins there"
    world.control.begins.record(SOURCE, ArchiveBegin(offset=2, reason="log start", recorded_at=world.clock.at))
    assert compared(world, SOURCE_KIND)["a/t/0"] is False


@pytest.mark.usefixtures("cluster")
def test_a_topic_that_may_not_be_described_does_not_end_the_verification() -> None:
    world = World()
    world.put(0, 9)
    Cluster.refuses.add("t")
    assert compared(world, SOURCE_KIND) == {"a/t/0": True}, "its stored partitions have their own verdict"


def publish_of(world: World, number: int, topic_id: str, position: int, *, end: int | None = None) -> None:
    """Watermarks of two hours ago of the topic t."""
    found = watermarks(datetime.now(UTC) - 2 * HOUR, {"t": (position if end is None else end,)})
    topic = replace(found.topics["t"], topic_id=topic_id, position=(position,))
    publish_watermarks(world.objects.memory, number, replace(found, topics={"t": topic}))


def test_a_position_of_a_log_that_was_cut_is_no_report_about_its_fork() -> None:
    """It stays until the first commit of the path that goes on."""
    world, now = World(), datetime.now(UTC)
    world.put(0, 99)
    claim = TopicClaim(topic_id="id", cluster_id="c", number=0, claimed_at=now - 5 * HOUR)
    world.control.claims.record(REGION, "t", claim)
    fork = replace(claim, number=1, claimed_at=now - 3 * HOUR, fork=1, forked_from="t")
    world.control.claims.record(REGION, "t@id-fork1", fork)
    world.record_begin(80, incarnation="id-fork1")
    publish_of(world, 1, "id", 100, end=80)
    assert missing(world) == {"a/t/0": []}
    publish_of(world, 2, "id", 85, end=90)
    assert missing(world) == {"a/t/0": [], "a/t@id-fork1/0": [[80, 84]]}


def test_a_partition_without_segments_is_proven_up_to_offset_zero() -> None:
    world = World()
    empty, filled = SOURCE, SourcePartition(REGION, "t", 1)
    entries = [entry(empty, offsets=None), entry(filled, offsets=[5, 9])]
    content = report(entries, world.clock.at, program="test", key=b"")
    with verification(world) as verified:
        verified.record(Report(content=content, begun_at=world.clock.at))
    proofs = ProofStore(world.objects, "data", REGION).proofs(REGION, "t")
    assert {number: proof.next_offset for number, proof in proofs.items()} == {0: 0, 1: 10}


def test_of_a_partition_whose_task_failed_no_proof_is_recorded() -> None:
    world = World()
    failed = {**entry(SOURCE, offsets=None), "equal": False, "failed": "its executor died"}
    found = Report(content=report([failed], world.clock.at, program="test", key=b""), begun_at=world.clock.at)
    assert found.has_failed
    with verification(world) as verified:
        verified.record(found)
    assert ProofStore(world.objects, "data", REGION).proofs(REGION, "t") == {}


def test_a_refused_request_makes_a_comparison_of_two_topics_unequal(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.admin.hides["t"] = "TOPIC_AUTHORIZATION_FAILED"
    monkeypatch.setattr("replicator.verify.verify.KafkaAdmin", partial(_admin, world.admin))
    with verification(world) as verified:
        verdict = verified.source_as_target(SOURCE, CONFIG, CONFIG, "copy")
    assert not verdict.is_equal
    assert verdict.unreadable.endswith("(b:9092): TOPIC_AUTHORIZATION_FAILED")


def _admin(admin: FakeAdmin, _: object) -> FakeAdmin:
    return admin
