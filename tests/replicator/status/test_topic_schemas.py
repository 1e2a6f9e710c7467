"""What `status` says of topics whose values carry ids of schemas."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from formats.control.schemas import Schema, SchemaSnapshot
from formats.segment import SegmentInfo
from replicator.commands.status_schemas import schemas_text
from replicator.status.schemas import TopicSchemas, read_topic_schemas
from tests.fakes.executors import HandExecutor
from tests.ingress.world import World

ID_7, ID_8 = b"\0\0\0\0\x07x", b"\0\0\0\0\x08x"


def copy_of(*ids: int) -> dict[str, SchemaSnapshot]:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    schemas = {number: Schema(text="x") for number in ids}
    return {"a": SchemaSnapshot(writer="w", observed_at=at, schemas=schemas, versions=())}


def read(world: World, copies: dict[str, SchemaSnapshot] | None = None) -> list[TopicSchemas]:
    newest = [info for topic in ("t", "u") for info in world.store.walk("a", topic)]
    return list(read_topic_schemas(world.archive, newest, copies or {}, HandExecutor()))


def test_the_last_stored_segment_of_each_topic_says_it() -> None:
    world = World()
    world.put(0, 9, value=ID_7)
    world.clock.advance(60)
    world.put(0, 9, partition=1, value=ID_8)
    world.put(0, 9, topic="u", value=b"plain")
    world.objects.calls.clear()
    [found] = read(world)
    assert (found.path, found.found.ids, found.share) == ("t", (8,), 1)
    assert world.objects.calls["open"] == 2, "one of each topic"


@pytest.mark.parametrize(
    ("copies", "expected"),
    [
        (None, "; the bucket has no copy of their registry: set [schema_registry] at a"),
        (copy_of(7), "; the bucket has them"),
        (copy_of(9), "; the copy of their registry has no 7"),
    ],
)
def test_it_says_whether_the_schemas_are_here(copies: dict[str, SchemaSnapshot] | None, expected: str) -> None:
    world = World()
    world.put(0, 9, value=ID_7)
    [found] = read(world, copies)
    assert schemas_text(found) == f"a/t: 100% of a sample look as if they carry ids of schemas (7){expected}"


def test_a_segment_that_cannot_be_read_says_nothing() -> None:
    world = World()
    world.damage(world.put(0, 9, value=ID_7))
    gone = world.put(0, 9, topic="u", value=ID_7)
    infos = [SegmentInfo(gone, 1, world.clock.at), *world.store.walk("a", "t")]
    world.remove(gone)
    assert list(read_topic_schemas(world.archive, infos, {}, HandExecutor())) == []


def test_the_state_of_delivery_names_the_last_segments() -> None:
    world = World()
    world.put(0, 9, value=ID_7)
    last = world.put(10, 19, value=ID_8)
    assert [info.segment for info in world.status().newest] == [last]
