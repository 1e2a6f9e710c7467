"""A partition assigned to this process: in one of four states, each a value, with every transition in this file.

    assigned ──> Locating ──begin──> Reading ──end, give_up──> Draining ──begin──> Reading

    Locating   the start offset is unknown and is looked up, once no upload of an earlier assignment is in flight
    Reading    records are read, or will be after the pending seek
    Draining   reading has ended; the records read are stored first, then the start offset is looked up
    Stopped    like Draining, for a reason that an operator has to resolve: the start offset is looked up at intervals
               that grow while the reason stays the same

    event       Locating    Reading               Draining              Stopped
    begin       Reading     -                     Reading               Reading
    stop        Stopped     Stopped               Stopped               Stopped, with the new reason
    end         ask later   Draining, Storing     ask later             ask later
    give_up     -           Draining, Abandoned   Draining, Abandoned   Stopped, Abandoned
    reopen      Locating    Locating              Locating              Stopped, with nothing left to store
    ask_again   ask then    -                     ask then              ask then
    postpone    ask then    seek then             ask then              ask then
    seek        -           seek pending          -                     -
    seek_done   -           no seek pending       -                     -
    set_uploads of earlier  -                     of what is Abandoned  of what is Abandoned or Contested

`-`: the event does not occur, or changes nothing. `Ask` means looking up the start offset. Records that were read but
are not all stored are a `Remainder`, until `reopen` or `begin`:

    Storing     sealed segments are stored and committed as usual; the lookup waits until none is in flight
    Abandoned   only uploads in flight finish, since the rest is lost or may be of another log; the lookup waits for
                them
    Contested   the archive holds segments that contradict the records, or are damaged; only uploads in flight finish,
                and the lookup, which asks whether those segments are gone, or can be decoded now, waits for them
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import assert_never

from egress.partition import Seek
from egress.read_session import ReadSession, session_at
from egress.settings import EgressTopicSettings
from egress.start.query import StartAt
from egress.topics.log_identity import ForkEvidence
from formats.segment import Segment, SourcePartition
from infra.contracts.cluster import TopicPartition
from infra.runtime import log_fields
from infra.runtime.failures import Failures
from infra.runtime.retry import Backoff

# between the checks whether the cause of a stop is gone
STOPPED_RETRY = Backoff(timedelta(seconds=30), timedelta(minutes=5))


@dataclass(frozen=True, slots=True)
class Storing:
    session: ReadSession


@dataclass(frozen=True, slots=True)
class Abandoned:
    session: ReadSession
    evidence: ForkEvidence | None = None  # that the log is not the one that is archived
    is_uploading: bool = True  # uploads that were in flight when it was given up are not finished


@dataclass(frozen=True, slots=True)
class Contested:
    session: ReadSession
    segments: tuple[Segment, ...]  # stored segments that differ from what was read
    are_damaged: bool = False  # one of them cannot be decoded: a good copy in its place is as good as none
    is_uploading: bool = True  # uploads of other segments that were in flight then are not finished


Remainder = Storing | Abandoned | Contested


@dataclass(frozen=True, slots=True, kw_only=True)
class Locating:
    ask_at: datetime | None = None  # None: at once
    is_uploading: bool = False  # uploads of an earlier assignment are in flight: the lookup waits for them


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
    """Compared by identity: the same partition assigned again is another `AssignedPartition`."""

    partition: TopicPartition
    source: SourcePartition  # with the plain path until the incarnation is known
    state: AssignedState = Locating()
    doubted: bool = False  # what was read contradicted the archive, and is read once more
    failures: int = 0  # transient failures in a row
    failing: Failures = field(default_factory=Failures)  # of requests to the cluster for this partition
    alarm: str = ""  # the alarm of `failing` that was last reported

    # --- queries of the state ---

    @property
    def remainder(self) -> Remainder | None:
        """Records that were read and are not all stored; None when nothing was read."""
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
        """The session of the remainder; None until the start offset is known, and after `reopen`."""
        remainder = self.remainder
        return None if remainder is None else remainder.session

    @property
    def reading(self) -> ReadSession | None:
        """The session while the partition is being read, else None."""
        return self.state.session if isinstance(self.state, Reading) else None

    @property
    def is_fetched(self) -> bool:
        """Whether records are read at the client's position: no seek is pending."""
        return isinstance(self.state, Reading) and self.state.seek is None

    @property
    def stopped(self) -> str:
        """Why the partition waits for an operator; empty when it does not."""
        return self.state.reason if isinstance(self.state, Stopped) else ""

    @property
    def is_storing(self) -> bool:
        """Whether segments are still being stored, including those read before the broker refused the partition."""
        match self.remainder:
            case None:
                return False
            case Storing(session=session):
                return session.core.in_flight > 0
            case Abandoned(is_uploading=is_uploading) | Contested(is_uploading=is_uploading):
                return is_uploading
            case remainder:
                assert_never(remainder)

    @property
    def is_quiet(self) -> bool:
        """Whether the poll thread has nothing to do for the partition until its next record. What becomes due by time
        alone, such as another attempt for a stopped partition, may wait for a poll that takes half a second."""
        match self.state:
            case Reading(session=session, seek=seek):
                return seek is None and session.core.deadline is None and not session.core.in_flight
            case Stopped(remainder=None):
                return True
            case _:
                return False

    @property
    def is_at_rest(self) -> bool:
        """Whether nothing becomes due for it by time either: it is read, no request for it fails, and it waits for its
        next record."""
        return isinstance(self.state, Reading) and self.is_quiet and not self.alarm and not self.failing.are_any

    def is_due(self, now: datetime) -> bool:
        """Whether the start offset may be looked up now."""
        match self.state:
            case Reading() | Locating(is_uploading=True):
                return False
            case Locating(ask_at=ask_at) | Draining(ask_at=ask_at) | Stopped(ask_at=ask_at):
                return not self.is_storing and (ask_at is None or now >= ask_at)
            case _:
                assert_never(self.state)

    # --- transitions ---

    def begin(self, answer: StartAt, settings: EgressTopicSettings) -> ReadSession:
        """Begin a new session at the start of `answer`."""
        session = session_at(answer, settings)
        self.source, self.state = answer.source, Reading(session=session)
        return session

    def stop(self, reason: str, remainder: Remainder | None, now: datetime) -> None:
        """End reading for `reason`. `remainder`: records that were read; usually `self.remainder`."""
        before = self.state.times if isinstance(self.state, Stopped) and self.state.reason == reason else 0
        ask_at = now + STOPPED_RETRY.delay(before)
        self.state = Stopped(reason=reason, remainder=remainder, ask_at=ask_at, times=before + 1)

    def end(self, ask_at: datetime) -> None:
        """End reading. Records already read are still stored; after that, at `ask_at`, the start is looked up."""
        if isinstance(self.state, Reading):
            self.state = Draining(remainder=Storing(self.state.session), ask_at=ask_at)
        else:
            self.ask_again(ask_at)

    def give_up(self, session: ReadSession, evidence: ForkEvidence | None, ask_at: datetime) -> None:
        """End reading; only uploads in flight finish. After that, at `ask_at`, the start offset is looked up."""
        remainder = Abandoned(session, evidence)
        if isinstance(self.state, Stopped):
            self.state = replace(self.state, remainder=remainder, ask_at=ask_at)
        else:
            self.state = Draining(remainder=remainder, ask_at=ask_at)

    def reopen(self) -> None:
        """Forget the session and the remainder; the start offset may be looked up at once."""
        if isinstance(self.state, Stopped):
            self.state = replace(self.state, remainder=None, ask_at=None)
        else:
            self.state = Locating()

    def ask_again(self, at: datetime | None) -> None:
        """Look the start offset up at that time (None: at once). No effect while the partition is being read."""
        if not isinstance(self.state, Reading):
            self.state = replace(self.state, ask_at=at)

    def postpone(self, until: datetime) -> None:
        """Postpone the next lookup or, while reading, the pending seek."""
        if isinstance(self.state, Reading):
            self.state = replace(self.state, seek_at=until)
        else:
            self.state = replace(self.state, ask_at=until)

    def seek(self, seek: Seek) -> None:
        """Replace the pending seek, at the time already set for it. No effect unless the partition is being read."""
        if isinstance(self.state, Reading):
            self.state = replace(self.state, seek=seek)

    def seek_done(self) -> None:
        """The pending seek is done."""
        if isinstance(self.state, Reading):
            self.state = replace(self.state, seek=None, seek_at=None)

    def set_uploads(self, *, are_under_way: bool) -> None:
        """Whether uploads of an abandoned or contested remainder, or of an earlier assignment, are still in flight."""
        match self.state:
            case Locating(is_uploading=True):
                self.state = replace(self.state, is_uploading=are_under_way)
            case Draining(remainder=Abandoned() as remainder) | Stopped(remainder=Abandoned() as remainder):
                self.state = replace(self.state, remainder=replace(remainder, is_uploading=are_under_way))
            case Stopped(remainder=Contested() as contested) as stopped:
                self.state = replace(stopped, remainder=replace(contested, is_uploading=are_under_way))
            case _:
                pass

    # --- names ---

    @property
    def attempts(self) -> str:
        """Health subject for requests to the cluster that keep failing for this partition."""
        return f"{self.source.region}/{self.partition} attempts"

    @property
    def rereading(self) -> str:
        """Health subject for a partition that is read again and again."""
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
