from __future__ import annotations

from datetime import timedelta
from io import BytesIO
from typing import Any

import pytest

from formats.control.gap import RecordedGap
from formats.errors import StoreUnavailable
from formats.messages.delivery_checkpoint import Checkpoint, CheckpointKey, Parked, Skipped
from formats.messages.group_claim import GroupClaim
from formats.segment import OffsetRange, SourcePartition
from infra.archive.control import ControlStore
from replicator.commands.status_text import group_text, print_ingress, topic_text
from replicator.status.ingress import IngressStatus
from tests.fakes.cluster_facts import FakeGroups
from tests.ingress.process import Process
from tests.ingress.world import World, key, source_settings, source_topic

GROUP = "replicator.ingress"


class Target:
    def __init__(self, *, members: int = 1, **source: Any) -> None:
        self.world = World(source_settings(**source))
        self.groups = FakeGroups(members={GROUP: members})
        self.control = ControlStore(self.world.objects, "data")
        self.world.broker.create("copy", partitions=2)

    def status(self) -> IngressStatus:
        return self.world.status(self.groups)

    def rows(self) -> dict[str, tuple[int | None, int | None, int]]:
        """Checkpoint, archive end and lag by source."""
        return {
            str(p.key.source): (p.checkpoint.next_offset if p.checkpoint else None, p.archive_end, p.lag)
            for p in self.status().partitions
        }


def test_archive_and_checkpoints_side_by_side() -> None:
    target = Target()
    target.world.put(10, 19)
    target.world.put(0, 4, partition=1)
    target.world.put(0, 4, topic="unwanted")
    target.world.set_checkpoint(15)
    assert target.rows() == {"a/t/0": (15, 20, 5), "a/t/1": (None, 5, 5)}
    assert target.status().problems == []


def test_a_checkpoint_whose_archive_is_gone_is_still_shown() -> None:
    target = Target()
    target.world.set_checkpoint(15)
    assert target.rows() == {"a/t/0": (15, None, 0)}


def test_a_destination_that_the_file_does_not_name_any_more_has_no_lag() -> None:
    target = Target()
    target.world.put(0, 9)
    old = CheckpointKey(SourcePartition("a", "t", 0), "copy.old")
    target.world.target.checkpoints[old] = Checkpoint(2, "id", target.world.clock.at)
    status = target.status()
    assert [(p.key.destination_topic, p.configured, p.lag) for p in status.partitions] == [
        ("copy", True, 10),
        ("copy.old", False, 0),
    ]
    assert status.problems == []


def test_proofs_that_cannot_be_decoded_hide_no_partition() -> None:
    target = Target()
    target.world.put(0, 9)
    target.world.put(0, 4, partition=1)
    key = f"data/b/_control/v1/proven/a/t/{1:020d}"
    target.world.objects.put_new(key, BytesIO(b"damaged"), 7)
    status = target.status()
    assert [(str(p.key.source), p.proof) for p in status.partitions] == [("a/t/0", None), ("a/t/1", None)]
    (problem,) = status.problems
    assert problem.startswith(f"when a/t was last verified is not known: {key}: not proofs of partitions")


def test_a_parked_partition_is_reported_for_every_destination() -> None:
    target = Target()
    target.world.put(0, 9)
    target.world.set_checkpoint(4)
    target.world.target.parked[key()] = Parked(4, "too large", target.world.clock.at)
    target.world.target.skipped += [Skipped(key=key(), offsets=OffsetRange(1, 2), reason="x", at=target.world.clock.at)]
    status = target.status()
    (parked,) = status.parked
    assert (parked.key, parked.skipped) == (key(), 2)
    assert status.problems == ["a/t/0 -> copy: parked at 4 since 2026-01-01T00:00:00+00:00: too large"]
    target.world.set_checkpoint(5)
    assert target.status().parked == []


def test_an_incarnation_that_is_not_followed_is_lag_and_a_problem() -> None:
    target = Target(members=0)
    target.world.put(0, 9, incarnation="later")
    assert target.rows() == {"a/t@later/0": (None, 10, 10)}
    (row,) = target.status().partitions
    assert row.configured
    assert row.waits_for == row.problems[0]
    assert "topic t was deleted and created again at the source" in row.problems[0]
    assert "Set on_recreate for this source" in row.problems[0]
    assert len(row.problems) == 1


def test_an_incarnation_that_waits_for_the_one_before_is_lag_and_no_problem() -> None:
    target = Target(on_recreate="follow")
    target.world.claim(0)
    target.world.claim(1, "later")
    target.world.put(0, 4)
    target.world.put(0, 9, incarnation="later")
    target.world.clock.advance(60)
    first, later = target.status().partitions
    assert (first.waits_for, later.waits_for) == ("", "the end of t, the incarnation before it")
    assert target.rows() == {"a/t/0": (None, 5, 5), "a/t@later/0": (None, 10, 10)}
    assert target.status().problems == []
    assert target.status().waiting == ["a/t@later -> copy: 10 offsets wait for the end of t, the incarnation before it"]
    target.world.clock.advance(36_000)
    assert [p.key.source.path for p in target.status().partitions if p.problems] == ["t"], "which alone could go on"
    key_of_later = CheckpointKey(SourcePartition("a", "t", 0, "later"), "copy")
    target.world.target.checkpoints[key_of_later] = Checkpoint(2, "id-copy", target.world.clock.at)
    assert target.rows()["a/t@later/0"] == (2, 10, 8)
    assert [p.waits_for for p in target.status().partitions] == ["", ""]


def test_an_incarnation_without_its_claim_says_so() -> None:
    target = Target(on_recreate="follow")
    target.world.put(0, 4)
    target.world.put(0, 9, incarnation="later")
    assert [p.lag for p in target.status().partitions] == [5, 10]
    (problem,) = target.status().problems
    assert problem.startswith("a/t@later/0 -> copy: t@later is a later incarnation of topic t")
    assert "_control/v1/places/t@later is missing" in problem


def test_waiting_offsets_without_a_reported_cause_are_a_problem() -> None:
    """A stalled owner may be unable to report the cause, for example without permission to write."""
    target = Target(first_segment_delay=timedelta(minutes=30))
    clock = target.world.clock
    target.world.put(0, 9)
    target.world.put(0, 9, partition=1)
    target.world.set_checkpoint(5)

    def waiting() -> list[str]:
        return [
            problem.partition(" -> ")[0] for problem in target.status().problems if "nothing was delivered" in problem
        ]

    clock.advance(299)
    assert waiting() == []
    clock.advance(1)
    assert waiting() == ["a/t/0"]
    clock.advance(30 * 60)
    assert waiting() == ["a/t/0", "a/t/1"], "the first segment of a partition waits for those before it"
    target.world.set_checkpoint(7)
    assert waiting() == ["a/t/1"], "it makes progress"
    target.world.set_checkpoint(10)
    target.world.set_checkpoint(10, partition=1)
    clock.advance(3600)
    target.world.put(10, 19)
    assert waiting() == [], "it was idle, and has just got something to do"


def test_a_refused_topic_is_reported_when_no_process_runs() -> None:
    target = Target(members=0)
    target.world.put(0, 9)
    target.world.admin.hides["copy"] = "not authorised to see topic copy"
    process = Process(target.world)
    process.turn(3)
    process.stop()
    (parked,) = target.status().parked
    assert (parked.key, parked.lag) == (key(), 10)
    assert "parked without a position" in parked.problems[0]
    assert "not authorised" in parked.problems[0]


def test_a_destination_that_may_not_be_described_is_a_problem() -> None:
    """Whether it was created again, or has too few partitions, is not known then."""
    target = Target()
    target.world.put(0, 9)
    target.world.target.checkpoints[key()] = Checkpoint(10, "id-copy", target.world.clock.at)
    assert target.status().problems == []
    target.world.admin.hides["copy"] = "describe topic copy: planned"
    assert target.status().problems == ["a/t/0 -> copy: describe topic copy: planned"]


def test_an_incarnation_with_its_own_topic_is_delivered_there() -> None:
    """Nothing waits for a decision: the policy gave it a destination."""
    target = Target(on_recreate="new-topic")
    target.world.broker.create("copy.LifeLife", partitions=1)
    target.world.put(0, 4)
    target.world.put(0, 9, incarnation="LifeLifeLife")
    life = CheckpointKey(SourcePartition("a", "t", 0, "LifeLifeLife"), "copy.LifeLife")
    assert [p.key for p in target.status().partitions] == [key(), life]
    assert target.rows() == {"a/t/0": (None, 5, 5), "a/t@LifeLifeLife/0": (None, 10, 10)}
    target.world.target.checkpoints[life] = Checkpoint(2, "id-copy.LifeLife", target.world.clock.at)
    assert target.rows()["a/t@LifeLifeLife/0"] == (2, 10, 8)
    assert [p.configured for p in target.status().partitions] == [True, True]


def test_recorded_gaps_are_no_missing_segments() -> None:
    target = Target()
    target.world.put(0, 4)
    target.world.put(8, 9)
    target.world.set_checkpoint(5)
    assert target.status().problems == [
        "a/t/0 -> copy: offsets [5,7] are in no segment, and no gap was recorded for them"
    ]
    target.control.gaps.record(
        RecordedGap(
            source=SourcePartition("a", "t", 0),
            offsets=OffsetRange(5, 7),
            reason="retention",
            low=8,
            high=9,
            recorded_at=target.world.clock.at,
        )
    )
    assert target.status().problems == []


def test_segments_stored_too_late_are_a_problem_until_given_up() -> None:
    target = Target()
    for start in (0, 100, 200):
        target.world.put(start, start + 99)
    at = target.world.clock.at
    target.world.target.checkpoints[key()] = Checkpoint(300, "id-copy", at, begun_at=200)
    (problem,) = target.status().problems
    assert problem.startswith("a/t/0 -> copy: offsets [0,199] of a/t/0 are stored and lie before 200")
    target.world.skip(0, 99)
    (problem,) = target.status().problems
    assert "offsets [100,199]" in problem
    target.world.skip(100, 199)
    assert target.status().problems == []


def test_segments_after_the_end_of_an_incarnation_are_a_problem_and_no_lag() -> None:
    target = Target(on_recreate="follow")
    target.world.claim(0)
    target.world.claim(1, "second")
    target.world.put(0, 9)
    target.world.put(0, 4, incarnation="second")
    at = target.world.clock.at
    target.world.target.checkpoints[key()] = Checkpoint(4, "id-copy", at, begun_at=0)
    target.world.target.checkpoints[key(incarnation="second")] = Checkpoint(
        5, "id-copy", at + timedelta(hours=1), begun_at=0
    )
    assert target.rows() == {"a/t/0": (4, 10, 0), "a/t@second/0": (5, 5, 0)}
    (problem,) = target.status().problems
    assert "offsets [4,9] of a/t/0 are stored, and are not delivered" in problem


def test_a_checkpoint_beyond_the_end_of_its_archive_is_a_problem() -> None:
    """Records between the two would be dropped, while the lag is 0."""
    target = Target()
    target.world.put(0, 9)
    target.world.set_checkpoint(10)
    assert target.status().problems == []
    target.world.set_checkpoint(13)
    (problem,) = target.status().problems
    assert problem.startswith("a/t/0 -> copy: the checkpoint, 13, lies beyond the end of the archive, 10: ")
    assert "`replicator checkpoints seed a/t/0 --offset 10`" in problem
    target.world.record_gap(10, 11)
    assert "the end of the archive, 12" in target.status().problems[0]
    target.world.target.skipped += [
        Skipped(key=key(), offsets=OffsetRange(12, 12), reason="x", at=target.world.clock.at)
    ]
    assert target.status().problems == []


def test_the_owner_of_the_checkpoint_topic_is_shown() -> None:
    target = Target()
    target.world.put(0, 9)
    target.world.set_checkpoint(10)
    assert (target.status().owner, target.status().problems) == ("", [])
    at = target.world.clock.at
    target.world.target.claims.append(GroupClaim(id="1", number=1, group_id="replicator.ingress", at=at))
    assert (target.status().owner, target.status().problems) == ("replicator.ingress", [])
    target.world.target.claims.append(
        GroupClaim(id="2", number=2, group_id="another", over="replicator.ingress", at=at)
    )
    assert target.status().problems == [
        "checkpoint topic replicator.checkpoint belongs to group another: processes of replicator.ingress are refused"
    ]


@pytest.mark.parametrize(
    ("members", "destination", "although"),
    [
        (1, True, "group replicator.ingress has members: it was deleted while they run"),
        (1, False, "group replicator.ingress has members"),
        (0, True, "destination copy does"),
        (0, False, None),
    ],
)
def test_without_the_checkpoint_topic(members: int, destination: bool, although: str | None) -> None:
    """Before ingress is started for the first time, nothing is wrong."""
    target = Target(members=members)
    assert target.status().has_topic
    if destination:
        target.world.put(0, 9)
    target.world.broker.delete("replicator.checkpoint")
    status = target.status()
    assert not status.has_topic
    problems = [p for p in status.problems if p.startswith("checkpoint topic replicator.checkpoint does not exist")]
    assert [f"does not exist, although {although}" in p and "checkpoints seed" in p for p in problems] == (
        [] if although is None else [True]
    )
    yet = " yet: ingress creates it when it starts" if although is None else ""
    assert topic_text(status) == f"checkpoint topic replicator.checkpoint does not exist{yet}"


def test_a_checkpoint_topic_that_may_not_be_described_may_exist() -> None:
    target = Target()
    target.world.admin.hides["replicator.checkpoint"] = "no DESCRIBE"
    assert target.status().has_topic


def test_a_group_without_members_is_a_problem() -> None:
    target = Target(members=0)
    target.world.put(0, 9)
    assert target.status().problems == ["no ingress process is in group replicator.ingress, and 10 offsets wait"]


def test_where_no_topic_matches_the_unknown_group_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    target = Target()
    target.groups.unknown.add(GROUP)

    def shown() -> str:
        print_ingress(target.status(), target.world.clock.at, (), archive="s3://b", by_partition=False)
        return capsys.readouterr().out.splitlines()[1]

    expected = (
        "ingress: no topic that is stored matches a source, so nothing is to be done yet: a process that runs joins"
    )
    target.world.put(0, 9, topic="unrelated")
    assert shown() == f"{expected} group {GROUP} with the first one"
    target.world.put(0, 9)
    assert shown().startswith(f"ingress: group {GROUP} has no members yet")
    target.groups.unknown.clear()
    assert shown().startswith(f"ingress: group {GROUP} is stable")


def test_a_region_without_an_archive_is_named_with_what_to_check(capsys: pytest.CaptureFixture[str]) -> None:
    target = Target()

    def shown() -> str:
        print_ingress(target.status(), target.world.clock.at, (), archive="s3://b/data", by_partition=False)
        return capsys.readouterr().out

    nothing = "nothing is archived under s3://b/data/a yet: check that egress runs in region a"
    assert nothing not in shown(), "which is a problem until anything arrives"
    assert "none of the archived topics" not in shown()
    target.world.publish_catalog(source_topic("t"))
    assert nothing in shown()
    assert "destination" not in shown(), "a table without rows"
    target.world.put(0, 9, topic="unrelated")
    assert "nothing is archived" not in shown()
    assert "none of the archived topics is delivered: `replicator explain topic NAME` says why" in shown()
    target.world.put(0, 9)
    assert "none of the archived topics" not in shown()
    assert "destination" in shown()


def test_a_source_region_of_which_nothing_ever_arrived_is_a_problem(capsys: pytest.CaptureFixture[str]) -> None:
    target = Target()
    [problem] = target.status().problems
    assert problem.startswith("nothing of source region a has ever arrived in this bucket")
    print_ingress(target.status(), target.world.clock.at, (), archive="s3://b/data", by_partition=False)
    assert f"! {problem}" in capsys.readouterr().out.splitlines()
    target.world.publish_catalog(source_topic("t"))
    assert target.status().problems == []


def test_a_source_with_the_name_of_no_topic_is_a_problem_once_the_catalogue_has_arrived() -> None:
    target = Target(topic="paymnts")
    target.world.put(0, 9, topic="unrelated")
    assert target.status().problems == [], "without a catalogue a topic without records is not known"
    target.world.publish_catalog(source_topic("payments"))
    assert target.status().problems == [
        "ingress.sources[0].topic: neither the archive nor the catalogue of a has a topic paymnts (did you mean "
        "'payments'?): correct the name, or let egress there archive it"
    ]
    target.world.publish_catalog(source_topic("paymnts"))
    assert target.status().problems == [], "which has no records yet"
    target.world.publish_catalog()
    target.world.put(0, 9, topic="paymnts")
    assert target.status().problems == [], "stored"


def test_a_source_with_an_expression_may_match_nothing() -> None:
    target = Target(topic="^t", destination="{topic}.copy")
    target.world.publish_catalog(source_topic("other"))
    assert target.status().problems == []


def test_a_group_that_the_cluster_does_not_know_is_not_dead() -> None:
    """A process joins it with the first topic, and may run and be ready before."""
    target = Target()
    target.groups.unknown.add(GROUP)
    target.world.put(0, 9)
    status = target.status()
    assert group_text(GROUP, status.group) == (
        "group replicator.ingress has no members yet, or none any more: the cluster does not know it"
    )
    assert status.problems == [
        "no ingress process is in group replicator.ingress, and 10 offsets wait; one that runs joins it with the first "
        "topic that it finds"
    ]
    target.groups.unknown.clear()
    assert group_text(GROUP, target.status().group) == (
        "group replicator.ingress is stable, members 1, partitions held 0"
    )


def test_unreadable_state_raises() -> None:
    target = Target()
    target.world.objects.away.add("list")
    with pytest.raises(StoreUnavailable):
        target.status()
