"""The offset map is trimmed whatever dies: the next call removes what is left, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import pytest

from formats.errors import BrokerUnavailable, StoreUnavailable
from formats.messages.map_key import MapKey
from infra.contracts.cluster import TopicPartition
from ingress.groups import map_trimmer
from ingress.groups.map_trimmer import OffsetMapTrimmer
from tests.fakes.kafka_offset_map import FakeOffsetMap
from tests.ingress.catalog.test_killed_applier import dies_at
from tests.ingress.groups.offset_maps import KEY, page

OLD = replace(KEY, destination_id="id-0")
WHERE = TopicPartition("us.orders", 3)
LOG_STARTS, IDS = {WHERE: 13}, {"us.orders": "id-1"}


@dataclass(slots=True)
class Notes:
    """What readers of copies learn."""

    noted: list[tuple[MapKey, int | None]] = field(default_factory=list)
    away: bool = False

    def trimmed(self, key: MapKey, first_start: int | None) -> None:
        if self.away:
            raise StoreUnavailable("planned")
        self.noted.append((key, first_start))


@pytest.fixture
def topic() -> Iterator[FakeOffsetMap]:
    """Pages at 0, 6, 12 and 18 of the destination, and two of its earlier incarnation."""
    made = FakeOffsetMap()
    made.put(*(page(n * 5, [(n * 5, n * 6, 5)]) for n in range(4)))
    made.put(*(page(n * 5, [(n * 5, n * 6, 5)], OLD) for n in range(2)))
    yield made
    made.close()


def test_pages_below_the_log_start_go_at_once_and_earlier_incarnations_with_the_next_call(topic: FakeOffsetMap) -> None:
    notes = Notes()
    trimmer = OffsetMapTrimmer(topic, topic, notes)
    assert trimmer.trim(LOG_STARTS, IDS) == 2
    assert (topic.starts(KEY), topic.starts(OLD)) == ([12, 18], [0, 6])
    assert trimmer.trim(LOG_STARTS, IDS) == 2
    assert (topic.starts(KEY), topic.starts(OLD)) == ([12, 18], [])
    assert notes.noted == [(KEY, 12), (OLD, None)]
    assert trimmer.trim(LOG_STARTS, IDS) == 0
    assert trimmer.trim(LOG_STARTS, {"us.orders": None}) == 0, "a broker may not know it for a moment"
    assert trimmer.trim(LOG_STARTS, IDS) == 0
    assert trimmer.trim(LOG_STARTS, {"us.orders": None}) == 0
    assert trimmer.trim(LOG_STARTS, {"us.orders": None}) == 2
    assert topic.read() == {}


@pytest.mark.parametrize("death", range(4))
def test_after_each_step_the_next_call_removes_the_rest(topic: FakeOffsetMap, death: int) -> None:
    notes = Notes()
    trimmer = OffsetMapTrimmer(topic, topic, notes)
    with dies_at(death) as died:
        trimmer.trim(LOG_STARTS, IDS)
        trimmer.trim(LOG_STARTS, IDS)
    assert died
    assert notes.noted[0] == (KEY, 12), "readers of copies learn it first"
    anew = OffsetMapTrimmer(topic, topic, notes)  # another process
    anew.trim(LOG_STARTS, IDS)
    anew.trim(LOG_STARTS, IDS)
    assert (topic.starts(KEY), topic.starts(OLD)) == ([12, 18], [])


def test_a_part_that_was_written_is_not_written_again(topic: FakeOffsetMap) -> None:
    topic.stopped = 1
    trimmer = OffsetMapTrimmer(topic, topic)
    with pytest.raises(BrokerUnavailable):
        trimmer.trim(LOG_STARTS, IDS)
    topic.stopped = None
    before = len(topic.records)
    assert trimmer.trim(LOG_STARTS, IDS) == 3
    assert (len(topic.records) - before, topic.starts(KEY)) == (3, [12, 18])


def test_many_are_removed_in_several_calls(topic: FakeOffsetMap, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(map_trimmer, "BATCH", 2)
    assert OffsetMapTrimmer(topic, topic).trim({WHERE: 99}, IDS) == 3
    assert topic.starts(KEY) == [18]


def test_what_cannot_be_noted_stays(topic: FakeOffsetMap) -> None:
    trimmer = OffsetMapTrimmer(topic, topic, Notes(away=True))
    with pytest.raises(StoreUnavailable):
        trimmer.trim(LOG_STARTS, IDS)
    assert topic.starts(KEY) == [0, 6, 12, 18]
