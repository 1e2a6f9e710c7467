"""Notes about parked and waiting partitions, written on a thread other than the controller's.

    controller: parked, waiting, started, progressed, revoked ──> latest state ──> [ thread ] read, write changes ──┐
                                                                      ^                                             │
                                                                      └── failed: later, if none is newer ──────────┘

The topic is read before each write. Therefore notes of an earlier owner are taken into account, a note that an operator
has removed is written again when the partition still cannot continue, and nothing is written twice.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import replace
from datetime import timedelta
from enum import Enum, auto

from formats.errors import ReplicatorError
from formats.messages.delivery_checkpoint import Checkpoint, CheckpointKey, Parked, Waiting, still_parked
from infra.contracts.internal_topics import CheckpointEditor, CheckpointStore
from infra.runtime.lifecycle import Stop
from infra.runtime.log_fields import COUNT, ERROR

RETRY = timedelta(seconds=5)
POLL_INTERVAL = timedelta(milliseconds=500)

log = logging.getLogger(__name__)


class _State(Enum):
    STARTED = auto()  # it has a position
    PROGRESSED = auto()  # it makes progress


class BackgroundParkedReporter:
    """A ParkedReporter. `run` is called on a thread of its own, the other methods on the controller's."""

    def __init__(
        self, store: CheckpointStore, editor: CheckpointEditor, stop: Stop, *, retry: timedelta = RETRY
    ) -> None:
        """`store` is shared, so it must be safe to call from several threads."""
        self._store, self._editor, self._stop, self._retry = store, editor, stop, retry
        self._changed = threading.Condition()
        self._states: dict[CheckpointKey, Parked | _State] = {}  # not written yet
        self._waiting: dict[CheckpointKey, Waiting] = {}  # not written yet
        self._progressing: set[CheckpointKey] = set()  # makes progress in this process, and that was reported

    def parked(self, key: CheckpointKey, parked: Parked) -> None:
        with self._changed:
            self._progressing.discard(key)
            self._states[key] = parked
            self._changed.notify()

    def waiting(self, key: CheckpointKey, waiting: Waiting) -> None:
        with self._changed:
            self._progressing.discard(key)
            self._waiting[key] = waiting
            self._changed.notify()

    def progressed(self, key: CheckpointKey) -> None:
        if key in self._progressing:
            return
        with self._changed:
            self._progressing.add(key)
            self._waiting.pop(key, None)
            self._states[key] = _State.PROGRESSED
            self._changed.notify()

    def started(self, key: CheckpointKey) -> None:
        with self._changed:
            state = self._states.get(key)
            if state is None or (isinstance(state, Parked) and state.next_offset is None):
                self._states[key] = _State.STARTED
                self._changed.notify()

    def revoked(self, key: CheckpointKey) -> None:
        with self._changed:
            self._progressing.discard(key)
            self._states.pop(key, None)
            self._waiting.pop(key, None)

    def run(self) -> None:
        """Run until stopped. Unwritten notes are then lost, as in a crash: the next owner reports them again."""
        while not self._stop.is_set():
            with self._changed:
                # a stop does not notify this condition, so it is polled
                self._changed.wait_for(lambda: bool(self._states or self._waiting), POLL_INTERVAL.total_seconds())
            if not self.write():
                self._stop.wait(self._retry)

    def write(self) -> bool:
        """Write what the topic does not contain yet; False when something is left to be written."""
        with self._changed:
            states, waiting_now = dict(self._states), dict(self._waiting)
        if not states and not waiting_now:
            return True
        try:
            positions, notes, waiting = self._store.read(), self._store.parked(), self._store.waiting()
            for key, state in states.items():
                known, position = notes.get(key), positions.get(key)
                checkpoint = position if isinstance(position, Checkpoint) else None
                note = _note(known if known is not None and still_parked(known, checkpoint) else None, state)
                if note != known:
                    self._editor.park(key, note)
                if state is _State.PROGRESSED and key in waiting:
                    self._editor.wait(key, None)
                self._written(key, state)
            for key, wait in waiting_now.items():
                if waiting.get(key) != wait:
                    self._editor.wait(key, wait)
                self._waited(key, wait)
        except ReplicatorError as error:
            log.warning("parked_notes_not_written", extra={COUNT: len(states) + len(waiting_now), ERROR: str(error)})
            return False
        return True

    def _waited(self, key: CheckpointKey, wait: Waiting) -> None:
        with self._changed:
            if self._waiting.get(key) is wait:
                del self._waiting[key]

    def _written(self, key: CheckpointKey, state: Parked | _State) -> None:
        with self._changed:
            if key in self._states and self._states[key] is state:  # else there is a newer state
                del self._states[key]


def _note(known: Parked | None, state: Parked | _State) -> Parked | None:
    """The note to write. `since` is the time of the first attempt at the same record, by any owner."""
    if state is _State.STARTED:
        return None if known is None or known.next_offset is None else known
    if not isinstance(state, Parked):
        return None
    if known is None or known.next_offset != state.next_offset:
        return state
    return replace(state, since=min(known.since, state.since))
