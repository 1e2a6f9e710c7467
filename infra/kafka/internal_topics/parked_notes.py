"""Notes of partitions that are parked or wait, written off the controller's thread.

    controller: parked, waiting, begun, going, left ──> last word of each key ──> [ thread ] read, write the news ──┐
                                                              ^                                                     │
                                                              └─── a failure: later, unless there is a newer word ──┘

The topic is read before each writing, so that an owner before us is heard, a note that an operator removed comes back
when the partition still cannot go on, and nothing is written twice.
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
LOOK = timedelta(milliseconds=500)

log = logging.getLogger(__name__)


class _Word(Enum):
    BEGUN = auto()  # it has a position
    GOING = auto()  # it makes progress


class BackgroundParkedReporter:
    """A ParkedNotes. `run` is a thread's, the other methods are the controller's."""

    def __init__(
        self, store: CheckpointStore, editor: CheckpointEditor, stop: Stop, *, retry: timedelta = RETRY
    ) -> None:
        """`store` is shared with others, so it must be safe to call from several threads."""
        self._store, self._editor, self._stop, self._retry = store, editor, stop, retry
        self._changed = threading.Condition()
        self._words: dict[CheckpointKey, Parked | _Word] = {}  # not written yet
        self._waits: dict[CheckpointKey, Waiting] = {}  # not written yet
        self._clean: set[CheckpointKey] = set()  # makes progress here, and that was said

    def parked(self, key: CheckpointKey, parked: Parked) -> None:
        with self._changed:
            self._clean.discard(key)
            self._words[key] = parked
            self._changed.notify()

    def waiting(self, key: CheckpointKey, waiting: Waiting) -> None:
        with self._changed:
            self._clean.discard(key)
            self._waits[key] = waiting
            self._changed.notify()

    def going(self, key: CheckpointKey) -> None:
        if key in self._clean:
            return
        with self._changed:
            self._clean.add(key)
            self._waits.pop(key, None)
            self._words[key] = _Word.GOING
            self._changed.notify()

    def begun(self, key: CheckpointKey) -> None:
        with self._changed:
            word = self._words.get(key)
            if word is None or (isinstance(word, Parked) and word.next_offset is None):
                self._words[key] = _Word.BEGUN
                self._changed.notify()

    def left(self, key: CheckpointKey) -> None:
        with self._changed:
            self._clean.discard(key)
            self._words.pop(key, None)
            self._waits.pop(key, None)

    def run(self) -> None:
        """Until stopped. What is not written by then is lost, as by a crash: the next owner says it again."""
        while not self._stop.is_set():
            with self._changed:
                # nobody notifies of a stop, so it is looked for now and then
                self._changed.wait_for(lambda: bool(self._words or self._waits), LOOK.total_seconds())
            if not self.write():
                self._stop.wait(self._retry)

    def write(self) -> bool:
        """Write what the topic does not say yet; False when something is left to be written."""
        with self._changed:
            words, waits = dict(self._words), dict(self._waits)
        if not words and not waits:
            return True
        try:
            positions, notes, waiting = self._store.read(), self._store.parked(), self._store.waiting()
            for key, word in words.items():
                known, position = notes.get(key), positions.get(key)
                checkpoint = position if isinstance(position, Checkpoint) else None
                note = _note(known if known is not None and still_parked(known, checkpoint) else None, word)
                if note != known:
                    self._editor.park(key, note)
                if word is _Word.GOING and key in waiting:
                    self._editor.wait(key, None)
                self._written(key, word)
            for key, wait in waits.items():
                if waiting.get(key) != wait:
                    self._editor.wait(key, wait)
                self._waited(key, wait)
        except ReplicatorError as error:
            log.warning("parked_notes_not_written", extra={COUNT: len(words) + len(waits), ERROR: str(error)})
            return False
        return True

    def _waited(self, key: CheckpointKey, wait: Waiting) -> None:
        with self._changed:
            if self._waits.get(key) is wait:
                del self._waits[key]

    def _written(self, key: CheckpointKey, word: Parked | _Word) -> None:
        with self._changed:
            if key in self._words and self._words[key] is word:  # else there is a newer one
                del self._words[key]


def _note(known: Parked | None, word: Parked | _Word) -> Parked | None:
    """At the same record since the first attempt, whoever made it."""
    if word is _Word.BEGUN:
        return None if known is None or known.next_offset is None else known
    if not isinstance(word, Parked):
        return None
    if known is None or known.next_offset != word.next_offset:
        return word
    return replace(word, since=min(known.since, word.since))
