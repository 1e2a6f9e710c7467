"""Groups that start at once, are taken over, crash and are frozen: one group at a time delivers, whatever compaction
drops of the log."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from formats.errors import OtherGroup
from formats.messages.checkpoint_notes import CheckpointNotes
from formats.messages.group_claim import (
    Ask,
    CountMembers,
    GroupClaim,
    ReadClaims,
    Withdraw,
    WriteClaim,
    claim_steps,
    current_claim,
    encode_claim,
    encode_claim_key,
)
from tests.examples import machine

NOW = datetime(2026, 1, 1, tzinfo=UTC)
GROUPS = ("one", "two", "three")
MOST = 3  # processes at a time: enough for every race, few enough for each to get somewhere
Record = tuple[bytes, bytes | None]


@dataclass
class Process:
    group: str
    own: set[str] = field(default_factory=set)
    asking: Generator[Ask, Any, GroupClaim] | None = None
    asked: Ask | None = None
    stands: GroupClaim | None = None  # as it read the topic last
    granted: GroupClaim | None = None
    is_member: bool = False
    delivers: bool = False


class GroupClaims(RuleBasedStateMachine):
    """Each step of a process is one request; in between anything may happen. The log is what a broker would hold."""

    def __init__(self) -> None:
        super().__init__()
        self.log: list[Record] = []
        self.late: list[Record] = []  # sent by a process that did not wait for the answer; may be appended any time
        self.processes: list[Process] = []
        self.numbers = count()
        self.granted: dict[int, str] = {}  # by number of the claim

    def claims(self) -> list[GroupClaim]:
        notes = CheckpointNotes()
        for key, value in self.log:
            notes.put(key, value)
        return list(notes.claims)

    def make(self, group: str) -> Any:
        return lambda number, over: GroupClaim(
            id=str(next(self.numbers)), number=number, group_id=group, over=over, at=NOW
        )

    @rule(group=st.sampled_from(GROUPS), take_over=st.sampled_from(("", "the one that stands", *GROUPS)))
    def starts(self, group: str, take_over: str) -> None:
        if len(self.processes) >= MOST:
            return
        process = Process(group)
        self.processes.append(process)
        stands = current_claim(self.claims())
        if take_over not in ("", *GROUPS):
            take_over = stands.group_id if stands else ""
        self.begin(process, take_over if take_over != group else "")

    @initialize(settled=st.booleans())
    def begun(self, settled: bool) -> None:
        """One group may be there, with a process that has not joined yet."""
        if settled:
            self.starts(GROUPS[0], "")
            while self.processes[0].asked:
                self.goes_on(0, "")

    def begin(self, process: Process, take_over: str) -> None:
        process.asking = claim_steps(
            topic="checkpoints",
            group_id=process.group,
            take_over=take_over,
            cluster_id="",
            own=process.own,
            make=self.make(process.group),
            now=NOW,
        )
        process.asked = next(process.asking)

    @precondition(lambda self: any(p.asked for p in self.processes))
    @rule(which=st.integers(0, MOST), lost=st.sampled_from(["", "", "", "", "", "written", "late", "never"]))
    def goes_on(self, which: int, lost: str) -> None:
        """`lost`: the answer is; the request was carried out, is later, or never."""
        asking = [p for p in self.processes if p.asked]
        process = asking[which % len(asking)]
        answer: object = None
        match process.asked:
            case ReadClaims():
                answer = self.claims()
                process.stands = current_claim(self.claims())
            case CountMembers(group_id=group):
                answer = sum(p.is_member for p in self.processes if p.group == group)
            case WriteClaim(claim=claim):
                self.write((encode_claim_key(claim), encode_claim(claim)), lost)
            case Withdraw(claim=claim):
                self.write((encode_claim_key(claim), None), lost)
        assert process.asking is not None
        if lost:
            self.begin(process, "")
            return
        try:
            process.asked = process.asking.send(answer)
        except StopIteration as ended:
            self.grant(process, ended.value)
        except OtherGroup:
            self.processes.remove(process)

    def grant(self, process: Process, claim: GroupClaim) -> None:
        process.asked, process.granted = None, claim
        assert claim.group_id == process.group
        assert self.granted.setdefault(claim.number, process.group) == process.group, "granted to two groups"
        # A claim that is outdated by now is granted, too: it was taken over after this was read. Its process finds that
        # out when it joins, before it delivers.
        assert claim == process.stands, "granted, though another group's claim stood"

    def write(self, record: Record, lost: str) -> None:
        if lost == "late":
            self.late.append(record)
        elif lost != "never":
            self.log.append(record)

    @precondition(lambda self: self.late)
    @rule(which=st.integers(0, 20))
    def arrives_late(self, which: int) -> None:
        self.log.append(self.late.pop(which % len(self.late)))

    @precondition(lambda self: any(p.granted and not p.delivers for p in self.processes))
    @rule(which=st.integers(0, MOST), only_joins=st.booleans())
    def joins_and_reads_its_positions(self, which: int, only_joins: bool) -> None:
        """Two steps: a member first, then the claims in the topic."""
        idle = [p for p in self.processes if p.granted and not p.delivers]
        process = idle[which % len(idle)]
        process.is_member = True
        if only_joins:
            return
        stands = current_claim(self.claims())
        if stands is not None and stands.group_id == process.group:
            process.delivers = True
        else:
            self.processes.remove(process)

    @precondition(lambda self: self.processes)
    @rule(which=st.integers(0, MOST), dies=st.booleans())
    def falls_out_of_its_group(self, which: int, dies: bool) -> None:
        """Frozen for longer than its session: what it delivers then is refused, and it has to join again."""
        process = self.processes[which % len(self.processes)]
        process.is_member = process.delivers = False
        if dies:
            self.processes.remove(process)

    @precondition(lambda self: self.log)
    @rule(until=st.integers(0, 50), forgets=st.booleans())
    def compaction(self, until: int, forgets: bool) -> None:
        """Of the older part of the log the last record of each key stays, and after a while no removal does."""
        before = current_claim(self.claims())
        old, young = self.log[:until], self.log[until:]
        last = {key: at for at, (key, _) in enumerate(old)}
        kept = [record for at, record in enumerate(old) if last[record[0]] == at]
        self.log = [record for record in kept if not forgets or record[1] is not None] + young
        assert current_claim(self.claims()) == before

    @invariant()
    def one_group_delivers(self) -> None:
        assert len({p.group for p in self.processes if p.delivers}) <= 1

    def teardown(self) -> None:
        """Every process that still asks gets an answer, and one that starts then as the owning group is granted."""
        for _ in range(200):
            if not any(p.asked for p in self.processes):
                break
            self.goes_on(0, "")
        assert not any(p.asked for p in self.processes)
        stands = current_claim(self.claims())
        if stands is not None and not any(p.group == stands.over for p in self.processes):
            process = Process(stands.group_id)
            self.processes.append(process)
            self.begin(process, "")
            while process.asked:
                self.goes_on(0, "")
            assert process.granted == stands


def test_two_groups_that_take_over_each_other() -> None:
    """Found by the machine: the loser is granted its claim after the winner's, and never delivers."""
    world = GroupClaims()
    world.begun(settled=True)
    world.processes.clear()  # it dies before it joins
    world.starts(GROUPS[2], GROUPS[0])
    loser = world.processes[0]
    while not (isinstance(loser.asked, CountMembers) and len(world.claims()) == 2):
        world.goes_on(0, "")
    world.starts(GROUPS[0], GROUPS[2])
    winner = world.processes[1]
    while winner.asked:
        world.goes_on(1, "")
    while loser.asked:
        world.goes_on(0, "")
    assert (winner.granted, loser.granted) == (current_claim(world.claims()), world.claims()[1])
    world.joins_and_reads_its_positions(0, only_joins=False)
    assert world.processes == [winner], "the loser has found out"
    world.joins_and_reads_its_positions(0, only_joins=False)
    assert winner.delivers


TestGroupClaims = GroupClaims.TestCase
TestGroupClaims.settings = machine(100)
