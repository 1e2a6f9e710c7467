"""A partition assigned to this process: in one of four states, each a value, with every transition in this file.

    assigned ──> Locating ──begin──> Reading ──end, give_up──> Draining ──begin──> Reading

    Locating   it is not known where to begin: it is asked
    Reading    records are read, or will be after the pending seek
    Draining   nothing is read any more; what was read is stored first, then it is asked where to begin
    Stopped    the same, for a reason that an operator has to mend: it is asked from time to time, and longer and longer
               pauses lie between while the reason stays the same

    event       Locating    Reading               Draining              Stopped
    begin       Reading     -                     Reading               Reading
    stop        Stopped     Stopped               Stopped               Stopped, for this reason
    end         ask later   Draining, Storing     ask later             ask later
    give_up     -           Draining, Abandoned   Draining, Abandoned   Stopped, Abandoned
    reopen      Locating    Locating              Locating              Stopped, with nothing left to store
    ask_again   ask then    -                     ask then              ask then
    postpone    ask then    seek then             ask then              ask then
    seek        -           seek pending          -                     -
    sought      -           no seek pending       -                     -
    uploads     -           -                     of what is Abandoned  of what is Abandoned

`-`: it does not happen, or changes nothing. What was read and is not all stored is a `Remainder`, until `reopen` or
`begin`:

    Storing     sealed segments are stored and committed as ever; it is asked where to begin when none is in flight
    Abandoned   only what is being stored already is stored, since the rest may be of another log; it is asked when no
                upload is under way
    Contested   the archive holds segments that contradict it; it is asked at once whether they are gone
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import assert_never

from egress.partition import Seek
from egress.read_session import ReadSession, session_at
from egress.settings import EgressTopicSettings
from egress.start.resolver import StartAt
from egress.topics.log_identity import ForkEvidence
from formats.segment import Segment, SourcePartition
from infra.contracts.cluster import TopicPartition
from infra.runtime import log_fields
from infra.runtime.failures import Failures
from infra.runtime.retry import Backoff

# a stopped partition asks whether its cause is gone
STOPPED_RETRY = Backoff(timedelta(seconds=30), timedelta(minutes=5))


@dataclass(frozen=True, slots=True)
class Storing:
    session: ReadSession


@dataclass(frozen=True, slots=True)
class Abandoned:
    session: ReadSession
    evidence: ForkEvidence | None = None  # that the log is not the one that is archived
    is_uploading: bool = True  # what was being stored when it was given up is not done yet


@dataclass(frozen=True, slots=True)
class Contested:
    session: ReadSession
    segments: tuple[Segment, ...]  # stored, and not what was read


Remainder = Storing | Abandoned | Contested


@dataclass(frozen=True, slots=True, kw_only=True)
class Locating:
    ask_at: datetime | None = None  # None: at once


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    session: ReadSession
    seek: Seek | None = None
    seek_at: datetime | None = None  # None: at once

    def due_seek(self, now: datetime) -> Seek | None:
        return self.seek if self.seek_at is None or now >= self.seek_at else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Draining:
    remainder: Storing | Abandoned
    ask_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    reason: str
    remainder: Remainder | None  # None: nothing was read
    ask_at: datetime | None
    times: int  # in a row, for this reason


AssignedState = Locating | Reading | Draining | Stopped


@dataclass(slots=True, eq=False)
class AssignedPartition:
    """Compared by identity: the same partition assigned again is another holding."""

    partition: TopicPartition
    source: SourcePartition  # the plain place's until the life is known
    state: AssignedState = Locating()
    doubted: bool = False  # what was read contradicted the archive, and is read once more
    failures: int = 0  # in a row, that time mends
    failing: Failures = field(default_factory=Failures)  # what is asked of the cluster for it
    alarm: str = ""  # of those, as it was told

    # --- what the state says ---

    @property
    def remainder(self) -> Remainder | None:
        """What was read, and what becomes of it; None: nothing was."""
        match self.state:
            case Locating():
                return None
            case Reading(session=session):
                return Storing(session)
            case Draining(remainder=remainder) | Stopped(remainder=remainder):
                return remainder
            case _:
                assert_never(self.state)

    @property
    def session(self) -> ReadSession | None:
        """None until it is known where to begin, and once what was read is of another log."""
        remainder = self.remainder
        return None if remainder is None else remainder.session

    @property
    def reading(self) -> ReadSession | None:
        """The session, while the partition is being archived."""
        return self.state.session if isinstance(self.state, Reading) else None

    @property
    def is_fetched(self) -> bool:
        """Its records are read from where the client stands."""
        return isinstance(self.state, Reading) and self.state.seek is None

    @property
    def stopped(self) -> str:
        """Why it waits for an operator; empty when it does not."""
        return self.state.reason if isinstance(self.state, Stopped) else ""

    @property
    def is_storing(self) -> bool:
        """Segments are under way, also those read before the broker refused the partition."""
        match self.remainder:
            case None | Contested():
                return False
            case Storing(session=session):
                return session.core.in_flight > 0
            case Abandoned(is_uploading=is_uploading):
                return is_uploading
            case remainder:
                assert_never(remainder)

    def is_due(self, now: datetime) -> bool:
        """It may be asked where to begin."""
        match self.state:
            case Reading():
                return False
            case Locating(ask_at=ask_at) | Draining(ask_at=ask_at) | Stopped(ask_at=ask_at):
                return not self.is_storing and (ask_at is None or now >= ask_at)
            case _:
                assert_never(self.state)

    # --- transitions ---

    def begin(self, answer: StartAt, settings: EgressTopicSettings) -> ReadSession:
        """Anew, where and as `answer` says."""
        session = session_at(answer, settings)
        self.source, self.state = answer.source, Reading(session=session)
        return session

    def stop(self, reason: str, remainder: Remainder | None, now: datetime) -> None:
        """No more is read; `remainder` is what is left of what was read, as a rule what it was before."""
        before = self.state.times if isinstance(self.state, Stopped) and self.state.reason == reason else 0
        ask_at = now + STOPPED_RETRY.delay(before)
        self.state = Stopped(reason=reason, remainder=remainder, ask_at=ask_at, times=before + 1)

    def end(self, ask_at: datetime) -> None:
        """No more is read; what was read is still to be stored; after that, at `ask_at`, it is asked where to begin."""
        if isinstance(self.state, Reading):
            self.state = Draining(remainder=Storing(self.state.session), ask_at=ask_at)
        else:
            self.ask_again(ask_at)

    def give_up(self, session: ReadSession, evidence: ForkEvidence | None, ask_at: datetime) -> None:
        """No more is read, and of what was read only what is being stored already; after that it is asked where to
        begin."""
        remainder = Abandoned(session, evidence)
        if isinstance(self.state, Stopped):
            self.state = replace(self.state, remainder=remainder, ask_at=ask_at)
        else:
            self.state = Draining(remainder=remainder, ask_at=ask_at)

    def reopen(self) -> None:
        """Nothing is known of where to begin, and it may be asked at once."""
        if isinstance(self.state, Stopped):
            self.state = replace(self.state, remainder=None, ask_at=None)
        else:
            self.state = Locating()

    def ask_again(self, at: datetime | None) -> None:
        """Where to begin, at that time, None: at once; nothing while it is being read."""
        if not isinstance(self.state, Reading):
            self.state = replace(self.state, ask_at=at)

    def postpone(self, until: datetime) -> None:
        """What comes next, the question or the seek."""
        if isinstance(self.state, Reading):
            self.state = replace(self.state, seek_at=until)
        else:
            self.state = replace(self.state, ask_at=until)

    def seek(self, seek: Seek) -> None:
        """Pending from now on, or when the one before would have been; nothing when no more is read."""
        if isinstance(self.state, Reading):
            self.state = replace(self.state, seek=seek)

    def sought(self) -> None:
        """The client stands where the pending seek leads."""
        if isinstance(self.state, Reading):
            self.state = replace(self.state, seek=None, seek_at=None)

    def uploads(self, *, are_under_way: bool) -> None:
        """Of what was given up."""
        match self.state:
            case Draining(remainder=Abandoned() as remainder) | Stopped(remainder=Abandoned() as remainder):
                self.state = replace(self.state, remainder=replace(remainder, is_uploading=are_under_way))
            case _:
                pass

    # --- names ---

    @property
    def attempts(self) -> str:
        """Subject of the problem that what is asked of the cluster for it fails again and again."""
        return f"{self.source.region}/{self.partition} attempts"

    @property
    def rereading(self) -> str:
        """Subject of the problem that it is read again and again."""
        return f"{self.source.region}/{self.partition} read again"

    @property
    def labels(self) -> dict[str, str]:
        return {"topic": self.partition.topic, "partition": str(self.partition.partition)}

    @property
    def fields(self) -> dict[str, object]:
        return {
            log_fields.REGION: self.source.region,
            log_fields.TOPIC: self.source.path,
            log_fields.PARTITION: self.partition.partition,
        }
