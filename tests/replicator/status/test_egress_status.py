from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from formats.control.archive_begin import ArchiveBegin
from formats.control.claim import TopicClaim
from formats.control.fork import LogFork
from formats.control.gap import RETENTION, RecordedGap
from formats.control.keys import begin_key, fork_key, gap_key
from formats.errors import BrokerUnavailable
from formats.forks import explain
from formats.segment import OffsetRange, Segment, SourcePartition
from formats.topic_selection import TopicPattern, TopicRule
from infra.archive.begins import BeginStore
from infra.archive.control import ControlStore
from infra.archive.proofs import Proof, ProofStore
from infra.archive.segments import SegmentStore
from infra.contracts.cluster import Committed, LogEnds, TopicPartition
from infra.contracts.storage import ObjectInfo, ObjectStore
from replicator.commands.status_text import print_egress
from replicator.config import EgressSettings, EgressTopicSettings
from replicator.status.egress import EgressSources, EgressStatus
from replicator.status.recorded import explain_losses
from tests.fakes.cluster_facts import FakeGroups, FakeProbe
from tests.fakes.executors import HandExecutor
from tests.ingress.world import World

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
SOURCE = SourcePartition("a", "t", 0)
GROUP = "replicator.egress"
NO_SUCH_TOPIC = "no topic of this name is on the cluster"


def place(topic_id: str, number: int = 0) -> TopicClaim:
    return TopicClaim(topic_id=topic_id, cluster_id="cluster", number=number, claimed_at=NOW)


class Cluster:
    def __init__(self) -> None:
        self.world = World()
        self.groups, self.probe = FakeGroups(members={GROUP: 1}), FakeProbe()
        self.control, self.store = ControlStore(self.world.objects, "data"), self.world.store
        for topic in ("t", "u"):
            self.world.broker.create(topic, partitions=2)
            for partition in range(2):
                self.probe.marks[TopicPartition(topic, partition)] = LogEnds(low=0, stable=10, high=10)

    def status(self, *patterns: str, exclude: Sequence[str] = ()) -> EgressStatus:
        rules = tuple(TopicRule(TopicPattern(pattern), EgressTopicSettings()) for pattern in patterns or ("^[tu]",))
        return EgressSources(
            region="a",
            settings=EgressSettings(topics=rules, exclude=tuple(map(TopicPattern, exclude))),
            own_topics=frozenset(),
            admin=self.world.admin,
            cluster_id=self.world.admin.cluster_id(),
            groups=self.groups,
            probe=self.probe,
            store=self.store,
            control=self.control,
            proofs=ProofStore(self.world.objects, "data", "a"),
        ).read(NOW, HandExecutor())


def test_every_selected_partition_has_its_row() -> None:
    cluster = Cluster()
    cluster.control.claims.record("a", "t", place("id-t"))
    cluster.control.claims.record("a", "u", place("earlier"))
    cluster.world.put(0, 9)
    cluster.world.put(0, 4, topic="u")  # of the earlier life
    cluster.groups.offsets[GROUP] = {TopicPartition("t", 0): Committed(10, "start=0 partitions=2")}
    cluster.probe.marks[TopicPartition("u", 1)] = LogEnds(low=0, stable=4, high=9)
    cluster.probe.stamped[TopicPartition("u", 1)] = NOW - timedelta(minutes=20)
    cluster.control.gaps.record(
        RecordedGap(source=SOURCE, offsets=OffsetRange(3, 4), reason=RETENTION, low=5, high=9, recorded_at=NOW)
    )
    status = cluster.status()
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


def test_topics_of_which_nothing_is_archived_are_shown_with_what_to_check(capsys: pytest.CaptureFixture[str]) -> None:
    cluster = Cluster()
    cluster.control.claims.record("a", "t", place("id-t"))

    def shown(*patterns: str) -> str:
        print_egress(cluster.status(*patterns), NOW, archive="s3://b/data", by_partition=False)
        return capsys.readouterr().out

    nothing = "nothing of these topics is archived under s3://b/data/a: 40 offsets wait"
    assert nothing in shown()
    assert "lag" in shown(), "the table has its rows"
    assert "no topic is selected: check the names in [egress.topics]" in shown("absent")
    assert "lag" not in shown("absent"), "a table without rows"
    assert f"! egress.topics.absent: {NO_SUCH_TOPIC}: correct the name, or create the topic" in shown("absent")
    cluster.world.put(0, 9)
    assert "nothing of these topics" not in shown()


def test_a_rule_with_the_name_of_no_topic_is_a_problem_that_names_the_setting_and_the_nearest_topic() -> None:
    cluster = Cluster()
    cluster.world.broker.create("payments", partitions=1)
    assert cluster.status("t", "paymnts", "^none.*", "a.b").problems == [
        f"egress.topics.paymnts: {NO_SUCH_TOPIC} (did you mean 'payments'?): correct the name, or create the topic",
        f'egress.topics."a.b": {NO_SUCH_TOPIC}: correct the name, or create the topic',
    ]
    cluster.world.broker.create("paymnts", partitions=1)
    assert cluster.status("t", "paymnts").problems == []


def test_an_excluded_name_is_no_problem_whether_its_topic_exists() -> None:
    cluster = Cluster()
    assert cluster.status("t", "u", "gone", exclude=("u", "gone")).problems == []


def holed(cluster: Cluster) -> list[Segment]:
    cluster.control.claims.record("a", "t", place("id-t"))
    segments = [cluster.world.put(start, start + 4) for start in (0, 5, 10)]
    cluster.groups.offsets[GROUP] = {TopicPartition("t", 0): Committed(15, "start=0 partitions=2")}
    cluster.probe.marks[TopicPartition("t", 0)] = LogEnds(low=0, stable=15, high=15)
    return segments


def test_an_object_that_is_gone_from_the_middle_is_a_problem() -> None:
    cluster = Cluster()
    cluster.world.remove(holed(cluster)[1], notify=False)
    (problem,) = cluster.status().problems
    assert problem.startswith("a/t/0: offsets [5,9] of the archive are in no segment")


def headless(*, begin: int | None, lowered: int | None = None, start: int = 0) -> Cluster:
    """Offsets 0 to 9 are gone from the archive. `start`: where it begins by the commit."""
    cluster = Cluster()
    segments = holed(cluster)
    cluster.groups.offsets[GROUP] = {TopicPartition("t", 0): Committed(15, f"start={start} partitions=2")}
    if begin is not None:
        cluster.world.record_begin(begin)
    if lowered is not None:
        earlier = ArchiveBegin(offset=lowered, reason="backfill", recorded_at=NOW)
        cluster.control.begins.lower(SOURCE, earlier)
    cluster.world.remove(*segments[:2], notify=False)
    return cluster


@pytest.mark.parametrize(
    ("begin", "lowered", "start"), [(0, None, 0), (10, 0, 10)], ids=["begun at 0", "begun at 10, and backfilled"]
)
def test_first_segments_that_are_gone_are_a_problem(begin: int, lowered: int | None, start: int) -> None:
    cluster = headless(begin=begin, lowered=lowered, start=start)
    (problem,) = cluster.status().problems
    assert problem.startswith("a/t/0: offsets [0,9] of the archive are in no segment")
    removed = RecordedGap(source=SOURCE, offsets=OffsetRange(0, 9), reason=RETENTION, low=0, high=15, recorded_at=NOW)
    cluster.control.gaps.record(removed)
    assert cluster.status().problems == []


@pytest.mark.parametrize(("begin", "start"), [(None, 0), (10, 10)], ids=["not recorded", "begun at 10"])
def test_an_archive_that_begins_later_is_whole(begin: int | None, start: int) -> None:
    assert headless(begin=begin, start=start).status().problems == []


def test_the_begins_are_asked_for_only_where_they_may_be_earlier(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, asked = headless(begin=10, start=10), list[SourcePartition]()
    monkeypatch.setattr(BeginStore, "of", lambda _, source: asked.append(source))
    assert cluster.status().problems == []
    assert asked == []
    headless(begin=0).status()
    assert asked == [SOURCE]


def test_a_recorded_loss_is_a_problem_until_it_is_accepted() -> None:
    """As `gaps` ends with 3 because of it."""
    cluster = Cluster()
    segments = holed(cluster)
    cluster.world.remove(segments[0], notify=False)
    cluster.world.remove(segments[1], notify=False)
    first, second = OffsetRange(0, 4), OffsetRange(5, 9)
    late = RecordedGap(source=SOURCE, offsets=second, reason="retention", low=10, high=15, recorded_at=NOW)
    cluster.control.gaps.record(replace(late, offsets=first, reason=RETENTION))
    assert cluster.status().problems == []

    def losses() -> tuple[int, int]:
        """Recorded gaps, and those of them that need attention."""
        (found,) = [one for one in cluster.status().partitions if one.source == SOURCE]
        return found.recorded_gaps, found.losses

    assert losses() == (1, 0)
    cluster.control.gaps.record(late)
    (problem,) = cluster.status().problems
    assert losses() == (2, 1)
    assert problem.startswith("a/t/0: offsets [5,9] were lost before they were archived: ")
    assert "`replicator gaps accept a/t/0 5-9 --reason TEXT --yes` accepts it" in problem
    cluster.control.gaps.record(replace(late, reason="known", is_accepted=True))
    assert cluster.status().problems == []
    assert losses() == (2, 0)


def test_a_loss_that_was_archived_after_all_is_none() -> None:
    """By `backfill --gaps`, or since the object was put back: the record stays."""
    cluster = Cluster()
    holed(cluster)
    late = RecordedGap(source=SOURCE, offsets=OffsetRange(5, 9), reason="retention", low=10, high=15, recorded_at=NOW)
    cluster.control.gaps.record(late)
    assert cluster.status().problems == []
    cluster.control.gaps.record(replace(late, offsets=OffsetRange(12, 20)))
    (problem,) = cluster.status().problems
    assert problem.startswith("a/t/0: offsets [12,20] were lost before they were archived: ")


def test_a_gap_that_cannot_be_decoded_is_a_problem_of_its_partition_alone() -> None:
    cluster = Cluster()
    cluster.world.remove(holed(cluster)[1], notify=False)
    objects = cluster.world.objects.memory
    for source in (SOURCE, SourcePartition("a", "gone", 3)):
        key = gap_key("data", source, OffsetRange(5, 9))
        objects.put_new(key, io.BytesIO(b"{"), 1)
    status = cluster.status()
    assert SOURCE in [one.source for one in status.partitions]
    (problem,) = status.problems
    assert problem.startswith("a/t/0: what is missing is not known: ")


def test_a_begin_that_cannot_be_decoded_is_a_problem_of_its_partition_alone() -> None:
    cluster = headless(begin=0)
    cluster.world.objects.memory.replace(begin_key("data", SOURCE), b"{")
    status = cluster.status()
    assert SourcePartition("a", "u", 1) in [one.source for one in status.partitions]
    (problem,) = status.problems
    assert problem.startswith("a/t/0: where its archive begins is not known: data/a/_control/v1/begins/t/0: ")


def test_a_fork_that_cannot_be_decoded_is_a_problem_of_its_partition_alone() -> None:
    cluster, fork = forked()
    objects = cluster.world.objects.memory
    key = fork_key("data", fork)
    objects.replace(key, b"{")
    elsewhere = SourcePartition("a", "gone", 3)
    objects.put_new(fork_key("data", replace(fork, source=elsewhere)), io.BytesIO(b"{"), 1)
    status = cluster.status()
    assert SourcePartition("a", "u", 1) in [one.source for one in status.partitions]
    (problem,) = status.problems
    assert problem.startswith(f"a/t/0: a fork of its log is recorded, and where is not known: {key}: ")


def test_proofs_that_cannot_be_decoded_hide_no_partition() -> None:
    cluster = Cluster()
    holed(cluster)
    objects = cluster.world.objects.memory
    ProofStore(objects, "data", "a").record({SOURCE: Proof(at=NOW, next_offset=15, is_whole=True)}, NOW)
    (key,) = (one.key for one in objects.list("data/a/_control/v1/proven/"))
    objects.replace(key, b"rubbish")
    status = cluster.status()
    assert SOURCE in [one.source for one in status.partitions]
    (problem,) = status.problems
    assert problem.startswith("when a/t was last verified is not known: ")
    assert key in problem


def test_of_many_losses_the_first_is_named() -> None:
    ranges = [OffsetRange(0, 4), OffsetRange(7, 7), OffsetRange(9, 9)]
    assert explain_losses(SOURCE, ranges[:2]).startswith("offsets [0,4] and 1 more gap were lost")
    assert explain_losses(SOURCE, ranges).startswith("offsets [0,4] and 2 more gaps were lost")


class Later:
    """An ObjectStore that calls `act` before a single partition is listed."""

    def __init__(self, objects: ObjectStore, act: Callable[[], None]) -> None:
        self._objects, self._act = objects, act

    def list(self, prefix: str, *, start_after: str = "", limit: int | None = None) -> Iterator[ObjectInfo]:
        if prefix == "data/a/t/0/":
            self._act()
        return self._objects.list(prefix, start_after=start_after, limit=limit)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._objects, name)


@pytest.mark.parametrize("is_merged", [True, False], ids=["merged", "removed by retention"])
def test_changes_during_a_listing_are_no_problem(is_merged: bool) -> None:
    """As in the listing of the topic: the small segment is gone, and its replacement is not listed yet."""
    cluster = Cluster()
    cluster.world.remove(holed(cluster)[1], notify=False)

    def meanwhile() -> None:
        if is_merged:
            cluster.world.put(5, 9, level=1)
        else:
            gone = OffsetRange(5, 9)
            gap = RecordedGap(source=SOURCE, offsets=gone, reason=RETENTION, low=0, high=15, recorded_at=NOW)
            ControlStore(cluster.world.objects.memory, "data").gaps.record(gap)

    cluster.store = SegmentStore(Later(cluster.world.objects, meanwhile), "data")
    assert cluster.status().problems == []


def test_an_archive_without_a_claim_waits_for_adopt() -> None:
    cluster = Cluster()
    cluster.world.put(0, 9)
    assert cluster.status().problems == [
        "t: its archive path holds segments and has no claim that identifies their topic. If they are of the topic "
        "that exists now (topic id id-t), run `replicator adopt t`; if not, move them away"
    ]


def test_a_commit_of_an_earlier_incarnation_is_ignored() -> None:
    cluster = Cluster()
    cluster.control.claims.record("a", "t", place("id-t"))
    cluster.groups.offsets[GROUP] = {TopicPartition("t", 0): Committed(5000, "start=0 partitions=1 topic=earlier")}
    rows = {str(p.source): (p.committed, p.problems, p.lag) for p in cluster.status().partitions}
    assert rows["a/t/0"] == (None, (), 10)


def forked() -> tuple[Cluster, LogFork]:
    """A fork recorded by egress; the log has grown past it again."""
    cluster = Cluster()
    cluster.control.claims.record("a", "t", place("id-t"))
    cluster.world.put(0, 9)
    cluster.groups.offsets[GROUP] = {TopicPartition("t", 0): Committed(10, "start=0 partitions=2 topic=id-t", 0)}
    cluster.probe.marks[TopicPartition("t", 0)] = LogEnds(low=0, stable=20, high=20)
    fork = LogFork(source=SOURCE, next_offset=10, leader_epoch=0, end_offset=5, found_at=NOW, evidence="the evidence")
    cluster.control.forks.record(fork)
    return cluster, fork


def test_a_recorded_fork_is_reported_with_both_remedies() -> None:
    cluster, fork = forked()
    (problem,) = cluster.status().problems
    assert problem == f"a/t/0: {explain(fork)}"
    assert "the evidence" in problem
    accepted = RecordedGap(
        source=SOURCE, offsets=fork.contested, reason="", low=0, high=10, recorded_at=NOW, is_accepted=True
    )
    cluster.control.gaps.record(accepted)
    assert cluster.status().problems == []


def test_a_fork_that_was_adopted_is_no_problem_any_more() -> None:
    cluster, _ = forked()
    claim = replace(place("id-t", 1), fork=1, forked_from="t")
    cluster.control.claims.record("a", "t@id-t-fork1", claim)
    status = cluster.status()
    assert status.problems == []
    rows = {str(p.source): (p.committed, p.lag) for p in status.partitions}
    assert rows["a/t@id-t-fork1/0"] == (None, 20), "the commit is of the place before"


def test_a_fork_of_the_path_after_a_fork_is_reported_though_it_holds_but_a_gap_at_these_offsets() -> None:
    cluster, _ = forked()
    cluster.control.claims.record("a", "t@id-t-fork1", replace(place("id-t", 1), fork=1, forked_from="t"))
    source = replace(SOURCE, incarnation="id-t-fork1")
    lost = RecordedGap(source=source, offsets=OffsetRange(5, 7), reason="", low=8, high=8, recorded_at=NOW)
    cluster.control.gaps.record(lost)
    fork = LogFork(source=source, next_offset=8, leader_epoch=1, end_offset=5, found_at=NOW, evidence="the evidence")
    cluster.control.forks.record(fork)
    (problem,) = cluster.status().problems
    assert problem == f"a/t@id-t-fork1/0: {explain(fork)}"
    cluster.control.gaps.record(replace(lost, is_accepted=True))
    assert cluster.status().problems == []


def test_a_fork_not_yet_recorded_is_found_by_its_leader_epoch() -> None:
    cluster, fork = forked()
    cluster.world.objects.delete_many([fork_key("data", fork)])
    cluster.probe.forked[TopicPartition("t", 0)] = 5
    (problem,) = cluster.status().problems
    assert problem.startswith("a/t/0: the log has forked: it reached 10 in leader epoch 0, which ends at 5 now")


def test_a_group_without_members_is_a_problem() -> None:
    cluster = Cluster()
    cluster.groups.members.clear()
    assert cluster.status().problems == ["no egress process is in group replicator.egress, and 40 offsets wait"]


def test_members_that_report_nothing_while_offsets_wait_are_a_problem() -> None:
    cluster = Cluster()
    holed(cluster)
    cluster.world.clock.at = NOW - timedelta(hours=12)
    cluster.world.beat()
    assert cluster.status("u").problems, "offsets of u wait"
    assert cluster.status("u").problems[0].startswith("egress stored its last heartbeat at 2026-05-01T00:00:00+00:00")
    for partition in range(2):
        cluster.groups.offsets[GROUP][TopicPartition("u", partition)] = Committed(10, "start=10 partitions=2")
    assert cluster.status("u").problems == [], "nothing waits"
    cluster.world.clock.at = NOW
    cluster.world.beat()
    del cluster.groups.offsets[GROUP][TopicPartition("u", 0)]
    assert cluster.status("u").problems == []


def test_a_topic_that_may_not_be_described_is_a_problem_of_its_own() -> None:
    """No listing shows it, and it is not taken for one that does not exist."""
    cluster = Cluster()
    cluster.world.admin.hides["t"] = "describe topic t: planned"
    status = cluster.status("t", "u")
    assert status.problems == ["t: describe topic t: planned: allow READ, which includes it"]
    assert {p.source.topic for p in status.partitions} == {"u"}


def test_so_is_one_that_only_the_archive_knows() -> None:
    cluster = Cluster()
    cluster.control.claims.record("a", "t", place("id-t"))
    cluster.world.admin.hides["t"] = "describe topic t: planned"
    assert cluster.status("^[tu]").problems == ["t: describe topic t: planned: allow READ, which includes it"]


def test_unreadable_state_raises() -> None:
    cluster = Cluster()
    cluster.groups.away = True
    with pytest.raises(BrokerUnavailable):
        cluster.status()


def test_an_egress_without_topics_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    group = World().status(FakeGroups(unknown={"replicator.ingress"})).group
    print_egress(
        EgressStatus(group_id="g", group=group, partitions=(), topics={}), NOW, archive="s3://b", by_partition=False
    )
    out = capsys.readouterr().out
    assert "egress: no topic of the cluster matches [egress.topics], so nothing" in out
    assert "partitions" not in out, "a table without rows"
