"""How far each partition is behind its source's log, as the bucket and the checkpoints say."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.control.watermarks import TopicWatermarks
from formats.messages.delivery_checkpoint import Checkpoint
from formats.segment import OffsetRange, Segment, SourcePartition
from infra.archive.forward_listing import MAX_AFTER
from infra.archive.segments import SegmentStore
from infra.storage.memory_and_folder import MemoryObjectStore
from replicator.commands.client_lag import lag_json, lag_table
from replicator.commands.status_json import ingress_json
from replicator.commands.status_text import print_ingress, source_text
from replicator.status.lag import PartitionLag, stored_bytes
from tests.examples import property_examples
from tests.ingress.world import World, key, source_settings

SOURCE = SourcePartition("a", "t", 0)


def rows(world: World) -> dict[int, tuple[int | None, int, float | None]]:
    """Records behind, of them here, and seconds; by partition."""
    return {lag.source.partition: (lag.records, lag.stored_records, lag.seconds) for lag in world.lags()}


def world_of_two() -> World:
    world = World(source_settings())
    world.broker.create("copy", partitions=2)
    return world


def test_behind_the_source_here_and_in_time() -> None:
    world = world_of_two()
    world.put(0, 349)
    world.put(0, 9, partition=1)
    world.set_checkpoint(260)
    world.set_checkpoint(10, partition=1)
    world.publish_watermarks(250, 10)
    world.clock.advance(30)
    newest = world.publish_watermarks(400, 10)
    world.clock.advance(30)
    world.beat(newest)
    world.clock.advance(7)
    assert rows(world) == {0: (140, 90, 67.0), 1: (0, 0, 7.0)}
    first, second = world.lags()
    assert (first.source_end, first.next_offset, first.destination) == (400, 260, "copy")
    assert first.stored_bytes > 0
    assert second.stored_bytes == 0
    assert sum(lag.records or 0 for lag in world.lags()) == world.status().sources[0].records_behind


def test_what_is_stored_is_behind_whatever_the_watermarks_are() -> None:
    """They are up to half a minute older than the segments, and older while egress cannot publish them."""
    world = world_of_two()
    world.put(0, 199)
    world.set_checkpoint(10)
    world.publish_watermarks(10, 0)
    assert rows(world)[0][:2] == (190, 190)
    assert world.status().sources[0].records_behind == 190


def test_status_names_it_in_records_bytes_and_time(capsys: pytest.CaptureFixture[str]) -> None:
    world = world_of_two()
    world.put(0, 349)
    world.set_checkpoint(260)
    world.beat(world.publish_watermarks(400, 0))
    world.clock.advance(7)
    lags, now = world.lags(), world.clock.at
    print_ingress(world.status(), now, (), lags, archive="s3://b", by_partition=False)
    _, table = capsys.readouterr().out.split("behind the sources' logs:\n")
    assert table.splitlines()[1].split()[:5] == ["a/t", "copy", "1", "140", "90"]
    (found,) = cast(Any, ingress_json(world.status(), now, (), lags))["lag"]
    assert (found["records"], found["stored_bytes"] > 0, "seconds" in found) == (140, True, True)
    world.set_checkpoint(400)
    print_ingress(world.status(), now, (), world.lags(), archive="s3://b", by_partition=False)
    assert "behind the sources' logs" not in capsys.readouterr().out


def test_without_watermarks_only_what_is_here_is_known() -> None:
    world = world_of_two()
    world.put(0, 9)
    assert rows(world) == {0: (None, 10, None)}
    (one,) = world.lags()
    assert (one.source_end, one.next_offset, one.complete_as_of) == (None, None, None)


def test_the_sum_of_a_region_says_that_it_lacks_partitions() -> None:
    """Whose leader is away at the source, or which are younger than the watermarks: it would read like all of it."""
    world = world_of_two()
    world.put(0, 9)
    world.put(0, 9, partition=1)
    world.set_checkpoint(4)
    world.beat(world.publish_watermarks(10))
    (source,) = world.status().sources
    assert (source.records_behind, source.unknown) == (6, 1)
    text = source_text(source, world.clock.at)
    assert text.endswith("at least 6 records behind its logs (not known of 1 partition), as of 0s ago")
    (found,) = cast(Any, ingress_json(world.status(), world.clock.at, ()))["sources"]
    assert (found["records_behind"], found["partitions_unknown"]) == (6, 1)
    world.beat(world.publish_watermarks(10, 10))
    (source,) = world.status().sources
    assert (source.records_behind, source.unknown) == (16, 0)


def test_an_incarnation_that_is_over_is_not_behind_the_log_of_the_next() -> None:
    world = World(source_settings(on_recreate="follow"))
    world.broker.create("copy", partitions=2)
    world.claim(0)
    world.claim(1, "later")
    world.put(0, 4)
    world.put(0, 9, incarnation="later")
    world.set_checkpoint(5)
    world.clock.advance(1)
    world.target.checkpoints[key(incarnation="later")] = Checkpoint(4, "id-copy", world.clock.at)
    world.publish_watermarks(20, topic_id="later")
    assert [(str(lag.source), lag.records) for lag in world.lags()] == [("a/t@later/0", 16)]
    assert world.status().sources[0].records_behind == 16


def created_again(on_recreate: str, *, arrived: int) -> World:
    """The first incarnation ended at 10 and is delivered; of the second, which ends at 50, so much is stored."""
    world = World(source_settings(on_recreate=on_recreate))
    world.broker.create("copy", partitions=1)
    world.claim(0, topic_id="first")
    world.put(0, 9)
    world.set_checkpoint(10)
    if arrived:
        world.claim(1, "second")
        world.put(0, arrived - 1, incarnation="second")
    world.beat(world.publish_watermarks(50, topic_id="second"))
    return world


@pytest.mark.parametrize("on_recreate", ["stop", "new-topic", "follow"])
@pytest.mark.parametrize("arrived", [0, 6])
def test_an_earlier_incarnation_is_not_behind_the_log_of_the_next(on_recreate: str, arrived: int) -> None:
    world = created_again(on_recreate, arrived=arrived)
    by_source = {str(one.source): one for one in world.lags()}
    first, one = by_source["a/t/0"], by_source["a/t@second/0"]
    assert (first.records, first.source_end, first.seconds) == (0, None, 0.0), "nothing of it is left at the source"
    assert (one.records, one.stored_records, one.source_end, one.seconds) == (50, arrived, 50, None)
    assert one.destination == ("copy.second" if on_recreate == "new-topic" else "copy")
    assert world.status().sources[0].records_behind == 50


def test_what_is_stored_of_an_earlier_incarnation_waits_all_the_same() -> None:
    world = created_again("stop", arrived=6)
    world.put(10, 12)
    first, second = world.lags()
    assert (str(first.source), first.records, first.source_end, first.seconds) == ("a/t/0", 3, None, None)
    assert second.records == 50
    assert world.status().sources[0].records_behind == 53


def test_a_topic_that_the_source_no_longer_has_is_complete_once_it_is_delivered() -> None:
    world = world_of_two()
    world.put(0, 9)
    world.set_checkpoint(4)
    world.beat(world.publish_watermarks(5, topic="other"))
    (one,) = (one for one in world.lags() if one.source.topic == "t")
    assert (one.records, one.stored_records, one.source_end, one.seconds) == (6, 6, None, None)
    world.set_checkpoint(10)
    (one,) = (one for one in world.lags() if one.source.topic == "t")
    assert (one.records, one.seconds) == (0, 0.0)


def test_watermarks_may_be_older_than_what_is_stored() -> None:
    world = world_of_two()
    world.put(0, 199)
    world.set_checkpoint(10)
    world.beat(world.publish_watermarks(10, 0))
    (one,) = world.lags()
    assert (one.records, one.stored_records) == (190, 190)
    assert world.status().sources[0].records_behind == 190


def test_what_has_not_arrived_is_behind() -> None:
    """Of a topic, and of another partition of one that arrives."""
    world = World(source_settings(topic="^t.*", destination="copy.{topic}"))
    world.broker.create("copy.t", partitions=2)
    world.put(0, 9)
    world.target.checkpoints[key(destination="copy.t")] = Checkpoint(10, "id-copy.t", world.clock.at)
    world.beat(world.publish_ends({"t": ends("t", 10, 7), "t2": ends("t2", 5000), "other": ends("other", 3)}))
    found = world.lags()
    assert [(str(one.source), one.destination, one.next_offset, one.records, one.seconds) for one in found] == [
        ("a/t/0", "copy.t", 10, 0, 0.0),
        ("a/t/1", "copy.t", None, 7, None),
        ("a/t2/0", "copy.t2", None, 5000, None),
    ]
    assert [line.split() for line in lag_table(found, by_partition=False).splitlines()[1:]] == [
        ["a/t", "copy.t", "2", "7", "0", "0", "B", "-"],
        ["a/t2", "copy.t2", "1", "5,000", "0", "0", "B", "-"],
    ]
    assert world.status().sources[0].records_behind == 5007


def ends(topic_id: str, *stable: int) -> TopicWatermarks:
    return TopicWatermarks(topic_id=topic_id, low=(0,) * len(stable), high=stable, stable=stable, position=stable)


# --- bytes ---


def store_of(*segments: tuple[int, int, int]) -> SegmentStore:
    """Of level, first and last offset; each has ten bytes for an offset."""
    store = SegmentStore(MemoryObjectStore(), "data")
    for level, start, end in segments:
        size = 10 * (end - start + 1)
        store.store(Segment(SOURCE, level, OffsetRange(start, end)), io.BytesIO(bytes(size)), size)
    return store


def test_each_offset_counts_once_whatever_its_level_is() -> None:
    store = store_of((0, 0, 9), (0, 10, 19), (1, 0, 19), (0, 20, 29), (0, 40, 49))
    assert [stored_bytes(store, SOURCE, at) for at in (0, 5, 20, 29, 30, 50)] == [400, 350, 200, 110, 100, 0]


def test_of_more_segments_than_a_page_holds() -> None:
    small = [(0, n, n) for n in range(3 * MAX_AFTER, 3 * MAX_AFTER + 100)]
    merged = [(1, 2 * n, 2 * n + 1) for n in range(3 * MAX_AFTER // 2)]
    assert stored_bytes(store_of(*small, *merged), SOURCE, 1) == 10 * (3 * MAX_AFTER + 99)


@property_examples()
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 30), st.integers(0, 6)), max_size=12), st.integers(0, 40))
def test_bytes_are_those_of_the_covered_offsets(found: list[tuple[int, int, int]], at: int) -> None:
    segments = {(level, start, start + more) for level, start, more in found}
    covered = {offset for _, start, end in segments for offset in range(start, end + 1) if offset >= at}
    assert stored_bytes(store_of(*segments), SOURCE, at) == 10 * len(covered)


# --- what is printed ---


def lag(partition: int, records: int | None, seconds: float | None, topic: str = "t") -> PartitionLag:
    return PartitionLag(
        source=SourcePartition("a", topic, partition),
        destination="copy",
        next_offset=None if partition else 5,
        source_end=None if records is None else 5 + records,
        records=records,
        stored_records=1_000,
        stored_bytes=2048,
        complete_as_of=None if seconds is None else datetime(2026, 1, 1, tzinfo=UTC),
        seconds=seconds,
    )


def test_a_line_for_each_topic_or_partition() -> None:
    found = [lag(0, 1_200, 61.0), lag(1, 1, 5.0), lag(0, 7, None, topic="u"), lag(1, None, None, topic="u")]
    assert [line.split() for line in lag_table(found, by_partition=False).splitlines()[1:]] == [
        ["a/t", "copy", "2", "1,201", "2,000", "4.0", "KiB", "1m1s", "ago"],
        ["a/u", "copy", "2", "-", "2,000", "4.0", "KiB", "-"],
    ]
    assert [line.split()[:4] for line in lag_table(found, by_partition=True).splitlines()[1:]] == [
        ["a/t/0", "copy", "5", "1205"],
        ["a/t/1", "copy", "-", "6"],
        ["a/u/0", "copy", "5", "12"],
        ["a/u/1", "copy", "-", "-"],
    ]
    assert lag_table([], by_partition=False) == "nothing is delivered here yet"


def test_as_json() -> None:
    assert lag_json(lag(0, 7, 61.0)) == {
        "source": "a/t/0",
        "destination": "copy",
        "next_offset": 5,
        "source_end": 12,
        "records": 7,
        "stored_records": 1_000,
        "stored_bytes": 2048,
        "complete_as_of": "2026-01-01T00:00:00+00:00",
        "seconds": 61.0,
    }
