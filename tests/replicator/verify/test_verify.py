"""A verification without brokers: partitions verified elsewhere, refused requests, and what is stored as proven."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from formats.control.archive_begin import ArchiveBegin
from formats.control.claim import TopicClaim
from formats.segment import Segment, SourcePartition
from formats.topic_selection import TopicPattern
from infra.archive.proofs import ProofStore
from infra.runtime.progress import Progress
from replicator.config import Config, from_mapping
from replicator.selection import Selection
from replicator.verify.proven import Proven
from replicator.verify.report import Report, report
from replicator.verify.scope import ARCHIVE, Found, VerifyScope
from replicator.verify.verify import Verification
from tests.fakes.kafka_admin import FakeAdmin
from tests.ingress.world import REGION, World
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


def missing(world: World, topic: str = "^.*") -> Mapping[str, Any]:
    selection = Selection(region=REGION, topics=[TopicPattern(topic)])
    with Verification(CONFIG, selection, objects=world.objects) as verified:
        return {one["source"]: one["missing"] for one in verified.run().entries}


def test_what_egress_reported_an_hour_ago_is_missing_where_no_segment_is() -> None:
    """Of a partition that lost its last segments, or all of them, and of a topic of which only the claim is left."""
    world, now = World(), datetime.now(UTC)
    for partition in (0, 1):
        world.put(0, 9, partition=partition)
    for topic in ("gone", "again"):
        claim = TopicClaim(topic_id=f"id-{topic}", cluster_id="c", number=0, claimed_at=now - 3 * HOUR)
        world.control.claim(REGION, topic, claim)
    later = SourcePartition(REGION, "t", 3)  # its archive begins where it ended then
    world.control.record_begin(later, ArchiveBegin(offset=7, reason="start policy", recorded_at=now))
    objects = world.objects.memory
    publish_watermarks(objects, 1, watermarks(now - 2 * HOUR, {"t": (10, 12, 5, 7), "gone": (4,)}))
    publish_watermarks(objects, 2, watermarks(now - HOUR / 2, {"t": (99, 99, 99, 99), "gone": (99,)}))
    publish_watermarks(objects, 3, watermarks(now, {"u": (99,)}))
    assert missing(world) == {"a/t/0": [], "a/t/1": [[10, 11]], "a/t/2": [[0, 4]], "a/gone/0": [[0, 3]]}
    assert missing(world, "t") == {"a/t/0": [], "a/t/1": [[10, 11]], "a/t/2": [[0, 4]]}


def test_a_report_is_about_the_incarnation_that_there_was() -> None:
    world, now = World(), datetime.now(UTC)
    world.put(0, 9)
    world.put(0, 4, incarnation="id-2")
    for number, path, topic_id in ((0, "t", "id-1"), (1, "t@id-2", "id-2")):
        claimed_at = now - (5 - 2 * number) * HOUR
        claim = TopicClaim(topic_id=topic_id, cluster_id="c", number=number, claimed_at=claimed_at)
        world.control.claim(REGION, path, claim)
    found = watermarks(now - 2 * HOUR, {"t": (6,)})
    found = replace(found, topics={"t": replace(found.topics["t"], topic_id="id-2")})
    publish_watermarks(world.objects.memory, 1, found)
    assert missing(world) == {"a/t@id-2/0": [[5, 5]]}


def test_a_partition_without_segments_is_proven_up_to_offset_zero() -> None:
    world = World()
    empty, filled = SOURCE, SourcePartition(REGION, "t", 1)
    entries = [entry(empty, offsets=None), entry(filled, offsets=[5, 9])]
    content = report(entries, world.clock.at, program="test", key=b"")
    with verification(world) as verified:
        verified.record(Report(content=content, begun_at=world.clock.at))
    proofs = ProofStore(world.objects, "data", REGION).proofs(REGION, "t")
    assert {number: proof.next_offset for number, proof in proofs.items()} == {0: 0, 1: 10}


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
