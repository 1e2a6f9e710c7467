from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from replicator.config import EgressSettings, EgressTopicSettings
from replicator.control import Place, RecordedGap
from replicator.control_store import ControlStore
from replicator.coverage import joined
from replicator.errors import BrokerUnavailable
from replicator.protocols import Committed, LogEnds, TopicFacts, TopicPartition
from replicator.segment import OffsetRange, SourcePartition
from replicator.status.egress import EgressPartition, EgressSources, EgressStatus, judged, life_of
from replicator.topics import TopicPattern, TopicRule
from tests.fakes.cluster_facts import FakeGroups, FakeProbe
from tests.fakes.executors import HandExecutor
from tests.ingress.world import World

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
SOURCE = SourcePartition("a", "t", 0)
GROUP = "replicator.egress"


def place(topic_id: str, number: int = 0) -> Place:
    return Place(topic_id=topic_id, cluster_id="cluster", number=number, claimed_at=NOW)


def judge(
    committed: int | None,
    *,
    low: int = 0,
    stable: int = 100,
    high: int = 100,
    archived: list[OffsetRange] | None = None,
    gaps: list[OffsetRange] | None = None,
    note: str = "start=0 partitions=1",
    open_for: timedelta | None = None,
) -> EgressPartition:
    return judged(
        SOURCE,
        topic_id="id-t",
        ends=LogEnds(low=low, stable=stable, high=high),
        committed=None if committed is None else Committed(committed, note),
        archived=joined([OffsetRange(0, 49)] if archived is None else archived),
        gaps=gaps or [],
        open_since=None if open_for is None else NOW - open_for,
        now=NOW,
        stuck_after=timedelta(minutes=15),
    )


class TestJudged:
    def test_healthy(self) -> None:
        found = judge(50)
        assert (found.problems, found.lag, found.archive_end, found.is_open) == ((), 50, 50, False)

    def test_nothing_committed_is_no_problem(self) -> None:
        assert (judge(None, archived=[]).problems, judge(None, archived=[], low=20).lag) == ((), 80)

    @pytest.mark.parametrize(
        ("found", "wanted"),
        [
            (judge(101), "ends at 100"),
            (judge(50, archived=[OffsetRange(0, 100)]), "but the topic at 100"),
            (judge(60), "ends before 50"),
            (judge(60, archived=[]), "holds nothing"),
            (judge(50, low=55), "now begins at 55"),
            (judge(50, low=70, archived=[OffsetRange(0, 49), OffsetRange(60, 79)]), "now begins at 70"),
            (judge(50, stable=70, open_for=timedelta(hours=1)), "holds everything from 70 back"),
        ],
    )
    def test_what_stops_the_archive(self, found: EgressPartition, wanted: str) -> None:
        (problem,) = found.problems
        assert wanted in problem

    @pytest.mark.parametrize(
        "found",
        [
            judge(50, low=55, gaps=[OffsetRange(50, 54)]),  # written down
            judge(50, low=55, archived=[OffsetRange(0, 59)]),  # stored, and committed soon
            judge(60, archived=[], note="start=60 partitions=1"),  # nothing to be archived yet
            judge(0, archived=[], note=""),  # an operator's word
            judge(50, stable=70, open_for=timedelta(minutes=1)),
            judge(50, stable=70),  # its record could not be read
        ],
    )
    def test_what_does_not(self, found: EgressPartition) -> None:
        assert found.problems == ()

    def test_a_commit_of_an_earlier_life_says_nothing(self) -> None:
        found = judge(5000, archived=[], note="start=0 partitions=1 topic=earlier")
        assert (found.committed, found.problems, found.lag) == (None, (), 100)


class TestLife:
    facts = TopicFacts("t", "id-t", 1)

    def test_by_topic_id(self) -> None:
        assert life_of(self.facts, None, [], "cluster") == ""
        assert life_of(self.facts, place("id-t"), [], "cluster") == ""
        assert life_of(self.facts, place("earlier"), [], "cluster") == "id-t"

    def test_without_topic_ids_the_newest_of_this_cluster(self) -> None:
        places = ["t", "t@cluster-2", "t@cluster-10", "t@other-11", "tt@cluster-12"]
        assert life_of(TopicFacts("t", "", 1), place("cluster-0"), places, "cluster") == "cluster-10"
        assert life_of(TopicFacts("t", "", 1), place("cluster-0"), ["t"], "cluster") == ""
        assert life_of(TopicFacts("t", "", 1), place("cluster-0"), ["t@cluster2-9"], "cluster") == ""
        assert life_of(TopicFacts("t", "", 1), place("a_b-0"), ["t@a_b-1"], "a.b") == "a_b-1"


class Cluster:
    def __init__(self) -> None:
        self.world = World()
        self.groups, self.probe = FakeGroups(members={GROUP: 1}), FakeProbe()
        self.control = ControlStore(self.world.objects, "data")
        for topic in ("t", "u"):
            self.world.broker.create(topic, partitions=2)
            for partition in range(2):
                self.probe.marks[TopicPartition(topic, partition)] = LogEnds(low=0, stable=10, high=10)

    def look(self) -> EgressStatus:
        rules = (TopicRule(TopicPattern("^[tu]"), EgressTopicSettings()),)
        return EgressSources(
            region="a",
            settings=EgressSettings(topics=rules),
            own_topics=frozenset(),
            admin=self.world.admin,
            groups=self.groups,
            probe=self.probe,
            store=self.world.store,
            control=self.control,
        ).look(NOW, HandExecutor())


def test_every_selected_partition_has_its_row() -> None:
    cluster = Cluster()
    cluster.control.claim("a", "t", place("id-t"))
    cluster.control.claim("a", "u", place("earlier"))
    cluster.world.put(0, 9)
    cluster.world.put(0, 4, topic="u")  # of the earlier life
    cluster.groups.offsets[GROUP] = {TopicPartition("t", 0): Committed(10, "start=0 partitions=2")}
    cluster.probe.marks[TopicPartition("u", 1)] = LogEnds(low=0, stable=4, high=9)
    cluster.probe.stamped[TopicPartition("u", 1)] = NOW - timedelta(minutes=20)
    cluster.control.record_gap(
        RecordedGap(source=SOURCE, offsets=OffsetRange(3, 4), reason="retention", low=5, high=9, recorded_at=NOW)
    )
    status = cluster.look()
    rows = {str(p.source): (p.committed, p.archive_end, p.lag, p.recorded_gaps) for p in status.partitions}
    assert rows == {
        "a/t/0": (10, 10, 0, 1),
        "a/t/1": (None, None, 10, 0),
        "a/u@id-u/0": (None, None, 10, 0),
        "a/u@id-u/1": (None, None, 9, 0),
    }
    assert [p.open_since for p in status.partitions if p.is_open] == [NOW - timedelta(minutes=20)]
    (problem,) = status.problems
    assert "transaction" in problem


def test_an_archive_without_a_place_object_waits_for_adopt() -> None:
    cluster = Cluster()
    cluster.world.put(0, 9)
    assert cluster.look().problems == [
        "t: segments lie in its place of the archive, and no place object says of which life of the topic they are; if "
        "they are of the one that is there now: replicator adopt t"
    ]


def test_nobody_at_work() -> None:
    cluster = Cluster()
    cluster.groups.members.clear()
    assert cluster.look().problems == ["no egress process is in group replicator.egress, and 40 offsets wait"]


def test_what_cannot_be_read_is_no_answer() -> None:
    cluster = Cluster()
    cluster.groups.away = True
    with pytest.raises(BrokerUnavailable):
        cluster.look()
