"""A verification without brokers: partitions verified elsewhere, refused requests, and what is stored as proven."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import pytest

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

CONFIG = from_mapping({"region": REGION, "kafka": {"bootstrap.servers": "b:9092"}, "s3": {"bucket": "b"}})
SELECTION = Selection(region=REGION, topics=[TopicPattern("t")])
SOURCE = SourcePartition(REGION, "t", 0)


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
