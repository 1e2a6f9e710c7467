"""What operators see of the source on the target's side: that it lives, and how far the target is behind it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from io import BytesIO

from formats.control.keys import heartbeat_prefix
from formats.control.watermarks import TopicWatermarks
from infra.archive.source_reports import SourceReports
from infra.contracts.cluster import Occupancy, TopicPartition
from tests.ingress.process import Process, joined
from tests.ingress.world import REGION, World, source_settings, source_topic

P0 = TopicPartition("copy", 0)
LABELS = {"region": "a", "topic": "t", "partition": "0"}


def behind(process: Process) -> tuple[float | None, float | None]:
    """Records and seconds."""
    process.later(40)
    process.later(6)
    return (
        process.metrics.value("source_lag_records", **LABELS),
        process.metrics.value("source_lag_seconds", **LABELS),
    )


def test_records_of_the_source_that_are_not_archived_count() -> None:
    world = World()
    world.put(0, 9)
    world.publish_watermarks(100)
    process = joined(world, P0)
    assert behind(process) == (90, 46), "not even the first observation is here: so long, at least"
    world.put(10, 99)
    process.turn(6)
    records, seconds = behind(process)
    assert (records, seconds) == (0, 2 * 46), "nothing says that the source still ends there"


def test_what_is_delivered_is_not_zero_while_positions_cannot_be_read() -> None:
    """Another process delivered the partition until now: its position waits, such as for the end of a transaction."""
    world = World()
    world.put(0, 9)
    world.publish_watermarks(100)
    world.set_checkpoint(10)
    process = Process(world)
    process.turn(2)
    process.checkpoint_pool.holding = True
    process.placement.assign(P0)
    assert behind(process) == (None, 46), "of the time, the least is known"
    process.checkpoint_pool.holding = False
    process.checkpoint_pool.run_all()
    assert behind(process)[0] == 90


def test_of_what_has_no_position_all_is_behind() -> None:
    world = World()
    world.target.occupied[P0] = Occupancy(holds_records=True)
    world.put(0, 9)
    world.publish_watermarks(100)
    process = joined(world, P0)
    assert behind(process)[0] == 100
    assert "holds records" in process.stopped["a/t/0"]


def test_a_heartbeat_says_that_the_ends_are_still_those() -> None:
    world = World()
    world.put(0, 9)
    number = world.publish_watermarks(10)
    process = joined(world, P0)
    world.clock.advance(3600)
    world.beat(number)
    assert behind(process) == (0, 46)
    assert process.metrics.value("source_heartbeat_age_seconds", region="a") == 46


def test_a_heartbeat_without_an_observation_says_nothing_of_the_logs() -> None:
    """Egress reaches the bucket, and its cluster does not answer: what was written there since is not known."""
    world = World()
    world.put(0, 9)
    number = world.publish_watermarks(10)
    process = joined(world, P0)
    world.clock.advance(3600)
    world.beat(number, agrees=False)
    assert behind(process) == (0, 3600 + 46)


def test_a_heartbeat_that_names_newer_watermarks_says_nothing_of_these() -> None:
    world = World()
    world.put(0, 9)
    number = world.publish_watermarks(10)
    process = joined(world, P0)
    world.clock.advance(3600)
    world.beat(number + 1)
    assert behind(process) == (0, 3600 + 46)


def test_a_topic_that_the_source_has_no_longer_has_no_lag_that_grows() -> None:
    """It would page for ever: the destination stays, and no end of its log is reported any more."""
    world = World()
    world.put(0, 9)
    world.beat(world.publish_watermarks(10))
    process = joined(world, P0)
    assert behind(process)[0] == 0
    world.beat(world.publish_watermarks(5, topic="u"))
    world.clock.advance(3600)
    assert behind(process) == (None, None)
    world.beat(world.publish_watermarks(30))
    assert behind(process)[0] == 20, "it is there again"


def test_data_may_stand_still_while_the_region_lives() -> None:
    world = World()
    world.put(0, 9)
    process = joined(world, P0)
    for number in range(1, 4):
        world.clock.advance(600)
        world.beat(world.publish_watermarks(10 + 100 * number))
        process.later(40)
    records, seconds = behind(process)
    assert records is not None
    assert records > 0
    assert seconds is not None
    assert seconds > 600
    assert (process.metrics.value("source_heartbeat_age_seconds", region="a") or 0) < 100


def test_a_topic_that_was_created_again_is_another_log() -> None:
    world = World(source_settings(on_recreate="new-topic"))
    world.claim(0, topic_id="first")
    world.put(0, 9)
    world.beat(world.publish_watermarks(10, topic_id="first"))
    process = joined(world, P0)
    assert behind(process)[0] == 0
    world.beat(world.publish_watermarks(50, topic_id="second"))
    assert behind(process) == (None, None)
    assert behind(process) == (None, None)


def missing(process: Process, topic: str) -> float | None:
    """Once the archive is listed again, and then the watermarks are read."""
    process.later(40)
    process.later(40)
    process.later(6)
    return process.metrics.value("source_not_arrived_records", region="a", topic=topic)


def test_a_topic_of_which_nothing_arrives_is_counted() -> None:
    world = World(source_settings(topic="^t.*", destination="copy.{topic}"))
    world.put(0, 9)
    process = joined(world, TopicPartition("copy.t", 0))
    ends = {
        name: TopicWatermarks(topic_id=name, low=(low, 0), high=(end, 0), stable=(end, 0), position=(end, 0))
        for name, low, end in (("t", 0, 10), ("t2", 500, 5500), ("t3", 7, 7), ("other", 0, 9))
    }
    world.beat(world.publish_ends(ends))
    assert missing(process, "t2") == 5000
    assert [missing(process, name) for name in ("t", "t3", "other")] == [None] * 3, "here, empty, and not selected"
    world.put(500, 5499, topic="t2")
    assert missing(process, "t2") is None


def test_a_topic_that_a_catalogue_names_has_the_lag_of_its_partitions() -> None:
    world = World(source_settings(topic="^t.*", destination="copy.{topic}"))
    world.put(0, 9)
    world.publish_catalog(source_topic("t"), source_topic("t2"))
    process = joined(world, TopicPartition("copy.t2", 0))
    world.beat(world.publish_watermarks(5000, topic="t2"))
    assert missing(process, "t2") is None
    assert process.metrics.value("source_lag_records", region="a", topic="t2", partition="0") == 5000


def test_a_topic_that_was_created_again_and_does_not_arrive_is_counted() -> None:
    world = World()
    world.claim(0, topic_id="first")
    world.put(0, 9)
    world.beat(world.publish_watermarks(10, topic_id="first"))
    process = joined(world, P0)
    assert missing(process, "t") is None
    world.beat(world.publish_watermarks(6, topic_id="second"))
    assert missing(process, "t") == 6
    world.put(0, 5, incarnation="second")
    assert missing(process, "t") is None, "it is here: that it is not delivered is in /readyz"


def test_without_a_search_for_new_topics_only_names_are_expected() -> None:
    world = World(source_settings(topic="^t.*", destination="copy.{topic}"), source_settings("u", "copy.u"))
    world.settings = replace(world.settings, topic_refresh_interval=timedelta())
    world.put(0, 9)
    process = joined(world, TopicPartition("copy.t", 0))
    ends = TopicWatermarks(topic_id="id", low=(0,), high=(9,), stable=(9,), position=(9,))
    world.beat(world.publish_ends({"t2": ends, "u": ends}))
    assert (missing(process, "t2"), missing(process, "u")) == (None, 9)


def test_the_lag_grows_while_the_end_of_a_log_is_not_known() -> None:
    world = World()
    world.put(0, 9)
    world.beat(world.publish_watermarks(10))
    process = joined(world, P0)
    behind(process)
    unknown = TopicWatermarks(topic_id="t", low=(0,), high=(None,), stable=(None,), position=(10,))
    world.beat(world.publish_ends({"t": unknown}))
    _, seconds = behind(process)
    assert behind(process) == (0, (seconds or 0) + 46)


def test_a_region_of_which_no_heartbeat_ever_arrived_is_as_silent_as_the_process_is_old() -> None:
    world = World()
    world.put(0, 9)
    process = joined(world, P0)
    process.later(6)
    first = process.metrics.value("source_heartbeat_age_seconds", region="a")
    process.later(600)
    later = process.metrics.value("source_heartbeat_age_seconds", region="a")
    assert first is not None
    assert later is not None
    assert first < 60
    assert later >= first + 600


def test_a_heartbeat_that_cannot_be_read_leaves_the_last_one() -> None:
    world = World()
    reports = SourceReports(world.objects, "data")
    assert reports.refresh([REGION])[REGION].heartbeat is None
    world.beat(7)
    first = reports.refresh([REGION])[REGION].heartbeat
    world.objects.memory.put_new(f"{heartbeat_prefix('data', REGION)}{2:020d}", BytesIO(b"rubbish"), 7)
    assert reports.refresh([REGION])[REGION].heartbeat == first is not None


def test_status_says_both() -> None:
    world = World()
    world.put(0, 9)
    number = world.publish_watermarks(100)
    joined(world, P0)
    world.clock.advance(60)
    world.beat(number)
    (source,) = world.status().sources
    assert (source.region, source.heartbeat_at, source.as_of) == ("a", world.clock.at, world.clock.at)
    assert source.records_behind == 90


def test_a_copy_that_is_not_copied_back_has_no_lag() -> None:
    world = World()
    world.publish_catalog(source_topic("t", lineage=["cluster"]))
    world.put(0, 9)
    joined(world, P0)
    assert world.status().partitions == ()
