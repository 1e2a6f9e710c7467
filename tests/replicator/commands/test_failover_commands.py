"""`failover` and `failback` on the command line: what they refuse, and what the plan prints."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from formats.messages.ledger import Failover, FailoverPhase
from formats.segment import SourcePartition
from infra.contracts.cluster import GroupFacts, TopicPartition
from ingress.groups.positions import GroupPosition
from ingress.groups.sync_plan import sync_plan
from ingress.groups.translation import Exactness
from replicator import main
from replicator.commands.failover_output import failover_json, failover_text, rehearsed_json, rehearsed_text
from replicator.failover.plan import ArrivingPartition, FailoverPlan, planned_groups
from replicator.failover.rehearse import Rehearsed, RehearsedPosition
from replicator.failover.streams import StreamsApplication

NOW = datetime(2026, 11, 21, 16, 40, 5, tzinfo=UTC)
HERE = TopicPartition("us.orders", 0)
STATE = ArrivingPartition(
    source=SourcePartition("us", "orders", 0),
    target=HERE,
    delivered=260,
    begins=0,
    arrived=350,
    source_end=400,
    complete_as_of=NOW - timedelta(seconds=95),
)
SECTIONS = """
region = "eu"
[kafka]
"bootstrap.servers" = "127.0.0.1:1"
[s3]
bucket = "archive"
[sqs]
queue = "segments"
"""
SOURCE = '[[ingress.sources]]\nregion = "{}"\ntopic = "{}"\n'


def plan(upstream: int) -> FailoverPlan:
    position = GroupPosition(
        group="g",
        source="us/orders/0",
        target=HERE,
        upstream=upstream,
        downstream=min(upstream, 260),
        exactness=Exactness.EXACT if upstream <= 260 else Exactness.CLAMPED,
    )
    facts = GroupFacts(state="empty", members=0, partitions=frozenset())
    decisions = {"g": sync_plan([position], facts=facts, committed={}, written={}, allow_rewind=False)}
    return FailoverPlan(
        region="us",
        now=NOW,
        state=None,
        heartbeat_at=NOW - timedelta(seconds=85),
        watermarks_at=NOW - timedelta(seconds=90),
        snapshot_at=NOW - timedelta(seconds=92),
        snapshot=311,
        partitions=[STATE],
        groups=planned_groups(decisions, [STATE]),
        streams=[StreamsApplication(group="g", inner=("g-x-changelog",), missing=("its names",))],
        members=2,
        servers="kafka.eu:9092",
        topics={"orders": ["us.orders"], "same": ["same"]},
    )


def test_the_plan_is_printed_in_numbers() -> None:
    lines = "\n".join(failover_text(plan(370))).splitlines()
    assert (
        "RPO: 50 offsets did not arrive; once delivered, complete as of: 2026-11-21T16:38:30+00:00, 1m35s ago" in lines
    )
    assert "RTO: 90 offsets are still to be delivered, by 2 ingress processes" in lines
    assert "  bootstrap.servers = kafka.eu:9092" in lines
    assert "  topic orders: read us.orders" in lines
    assert "  topic same: the same name" in lines
    assert [line for line in lines if line.startswith("!")] == [
        "! us/orders/0: 50 offsets did not arrive: [350,399]",
        "! group g in us/orders/0: beyond: it had passed 20 offsets that did not arrive",
        "! Kafka Streams application g: its names",
    ]


def test_a_loss_that_is_not_known_is_no_loss_of_nothing() -> None:
    unknown = replace(plan(260), watermarks_at=None, partitions=[replace(STATE, source_end=None, complete_as_of=None)])
    assert "RPO: not known: no watermarks of us have arrived; once delivered, complete as of: not known" in list(
        failover_text(unknown)
    )
    assert failover_json(unknown)["missing"] is None
    assert any("no watermarks of us have arrived" in one for one in failover_text(unknown) if one.startswith("! "))
    in_part = replace(unknown, watermarks_at=NOW, partitions=[*unknown.partitions, STATE])
    assert any("RPO: 50 offsets did not arrive, not known of 1 partitions" in one for one in failover_text(in_part))


def rehearsed(*positions: RehearsedPosition) -> Rehearsed:
    return Rehearsed(plan=plan(260), positions=positions, records=0, seconds=1.5, kept=False)


def test_a_rehearsal_that_compared_nothing_is_not_good() -> None:
    """A mistyped region has no groups: its rehearsal passed."""
    nothing = rehearsed()
    assert not nothing.is_good
    assert rehearsed_json(nothing)["good"] is False
    assert any(one.startswith("! nothing was compared: no group of us has") for one in rehearsed_text(nothing))
    one = RehearsedPosition(group="r.g", target=HERE, offset=260, source_offset=260, is_next=None)
    assert rehearsed(one).is_good, "at the end of what is delivered: its position was compared"
    wrong = rehearsed(replace(one, is_next=False, reason="another record"))
    assert (wrong.is_good, wrong.problem) == (False, "")


def test_json_has_every_position_and_how_far_an_earlier_run_came() -> None:
    state = Failover(region="us", epoch=2, phase=FailoverPhase.GROUPS, at=NOW, snapshot=311, left=("h",))
    found = failover_json(replace(plan(300), state=state))
    assert found["state"] == {
        "epoch": 2,
        "phase": "groups",
        "at": NOW.isoformat(),
        "snapshot": 311,
        "left": ["h"],
    }
    assert (found["missing"], found["to_deliver"]) == (50, 90)
    groups = found["groups"]
    assert isinstance(groups, dict)
    [one] = groups["g"]
    assert (one["verdict"], one["source_offset"], one["offset"], one["beyond"]) == ("waiting", 300, 260, 0)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("failback", "plan"), "give --to"),
        (("failback", "execute", "--to", "us", "--from", "us"), "give --to"),
        (("failover", "plan"), "name one of the source regions"),
        (("failover", "execute", "--wait", "soon"), "soon"),
        (("failover", "rehearse", "--prefix", ""), "the real topics"),
    ],
)
def test_what_is_refused(
    arguments: tuple[str, ...], problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "replicator.toml"
    file.write_text(SECTIONS + SOURCE.format("us", "a") + SOURCE.format("ap", "b"), encoding="utf-8")
    with pytest.raises(SystemExit) as ended:
        main.main([*arguments, "--config", str(file)])
    assert ended.value.code == 2
    assert problem in " ".join(capsys.readouterr().err.replace("│", " ").split())
