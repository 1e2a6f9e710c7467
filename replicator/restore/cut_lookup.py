"""Finds the cut of a restore to a moment in the archive: by the watermarks that egress stored of the source.

watermarks   4711     4712  4713     4714      each complete, in the order of their observations
settled        x              x                all selected partitions
--at                                ^          4713 is in force: its ends are the cut
--at --transactional                ^          the newest one before that is settled: 4713 here, else 4711

The ends of settled partitions split no transaction, whenever a log is cut there. They are the ends at each later
moment, too, up to an observation that finds them unchanged, since a last stable offset never goes back: where 4714 has
the same ends as 4713, or a heartbeat says that what was observed last still is 4714, the moment is `--at` itself.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import chain, islice

from formats.control.heartbeat import WriterHeartbeat
from formats.control.restore_cut import Cut, cut_topics
from formats.control.watermarks import SourceWatermarks
from formats.errors import ConfigError
from formats.topic_selection import is_internal
from infra.archive.generation_history import GenerationHistory, GenerationInForce
from replicator.selection import Selection

MOST_READ = 5_000  # generations: half a week when something is written every minute, and two days otherwise
CLOCK_DIFFERENCE = timedelta(minutes=1)
"""The source's clock, by which a moment is named, may be so far before the one here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedCut:
    cut: Cut
    problems: tuple[str, ...] = ()  # generations that cannot be read, where one of them may have been in force


@dataclass(frozen=True, slots=True)
class CutLookup:
    """Of the region of the selection. Use from one thread."""

    history: GenerationHistory[SourceWatermarks]
    selection: Selection
    now: datetime  # here, whose clock may differ from the source's
    heartbeat: WriterHeartbeat | None = None  # the newest of the region; None: not known

    def find(self, pinned: Cut | None = None) -> ArchivedCut:
        """`pinned`: that of an earlier run of the same restore, which stays. Raises StoreUnavailable, and ConfigError
        when no generation tells."""
        assert self.selection.at is not None
        problems: tuple[str, ...] = ()
        if pinned is None:
            found = self.history.at(self.selection.at)
            number, value = self._in_force(found)
            self._refuse_the_future(number, value)
            problems = tuple(found.problems)
            if self.selection.is_transactional:
                number, value = self._settled(number, value)
            pinned = self._cut(number, value)
            if self.selection.is_transactional and value.settled_at is not None:
                pinned = replace(pinned, settled_at=self._until(number, pinned, value.settled_at))
        return ArchivedCut(cut=pinned, problems=problems)

    def _in_force(self, found: GenerationInForce[SourceWatermarks]) -> tuple[int, SourceWatermarks]:
        region, at = self.selection.region, self.selection.at
        if found.value is not None:
            return found.number, found.value
        if found.first_observed_at is not None:
            why = (
                f"no watermarks of {region} are as old as {at}: the first are of {found.first_observed_at.isoformat()}"
            )
        else:
            why = f"the archive has no watermarks of {region} that can be read"
        remedy = (
            "so it is not known where its partitions ended then. --until selects records by their timestamps instead, "
            "which are not ordered: it may split transactions, and leave out or take in single records"
        )
        raise ConfigError([f"{why}, {remedy}"], source="archive")

    def _refuse_the_future(self, number: int, value: SourceWatermarks) -> None:
        """A restore would end wherever the archive ends, which no later run of it could repeat."""
        at = self.selection.at
        if at is None or at <= max(self.now + CLOCK_DIFFERENCE, value.observed_at):
            return
        if self.history.following(number) is not None:  # the source's clock has passed it
            return
        newest = value.observed_at.isoformat(timespec="seconds")
        raise ConfigError(
            [
                f"--at {at.isoformat()}: this moment has not come, it is {self.now.isoformat(timespec='seconds')}: "
                f"where the partitions of {self.selection.region} end then is not known. Name a moment that has "
                f"passed; the newest watermarks are of {newest}"
            ],
            source="restore",
        )

    def _settled(self, number: int, value: SourceWatermarks) -> tuple[int, SourceWatermarks]:
        """The newest generation up to this one at which all selected partitions were settled."""
        tried, fewest, oldest = 0, "", value.observed_at
        least: int | None = None
        for one, found in islice(chain([(number, value)], self.history.earlier(number)), MOST_READ):
            cut, tried, oldest = self._cut(one, found, is_last=False), tried + 1, found.observed_at
            left = list(cut.unsettled(self.selection.wants))
            at = found.settled_at
            if not left and at is not None and self.selection.at is not None and at <= self.selection.at:
                return one, found
            if left and (least is None or len(left) < least):
                least, (topic, partition) = len(left), left[0]
                fewest = f"; at the best of them {least} partitions were not, such as {topic}/{partition}"
        raise ConfigError(
            [
                f"in none of the {tried} watermarks of {self.selection.region} from {self.selection.at} back to "
                f"{oldest.isoformat()} all selected partitions were settled{fewest}. Select fewer topics, or restore "
                "without --transactional"
            ],
            source="archive",
        )

    def _until(self, number: int, cut: Cut, settled_at: datetime) -> datetime:
        """The last moment up to the one that was asked for at which the ends were still those of the cut."""
        at, newest = cut.wanted_at, number
        for later, found in islice(self.history.later(number), MOST_READ):
            if settled_at >= at:
                return at
            if not self._has_ends_of(cut, found):
                return settled_at
            newest, settled_at = later, max(settled_at, found.observed_at)
        beat = self.heartbeat
        if beat is not None and beat.watermarks == newest and beat.watermarks_at is not None:
            settled_at = max(settled_at, beat.watermarks_at)
        return min(settled_at, at)

    def _has_ends_of(self, cut: Cut, found: SourceWatermarks) -> bool:
        """Whether it has the same selected partitions, and each ends where it ended."""
        topics = cut_topics(found, self._is_selected)
        return topics.keys() == cut.topics.keys() and all(
            (one.topic_id, len(one.ends)) == (topics[name].topic_id, len(topics[name].ends))
            and all(
                end is not None and end == topics[name].ends[partition]
                for partition, end in enumerate(one.ends)
                if self.selection.wants(name, partition)
            )
            for name, one in cut.topics.items()
        )

    def _cut(self, number: int, value: SourceWatermarks, *, is_last: bool = True) -> Cut:
        assert self.selection.at is not None
        following = self.history.following(number) if is_last else None
        return Cut(
            region=self.selection.region,
            wanted_at=self.selection.at,
            generation=number,
            observed_at=value.observed_at,
            settled_at=value.settled_at,
            next_observed_at=None if following is None else following.observed_at,
            is_transactional=self.selection.is_transactional,
            topics=cut_topics(value, self._is_selected),
        )

    def _is_selected(self, topic: str) -> bool:
        return self.selection.matches(topic) and not is_internal(topic, ())
