"""Progress of a restore: a bar on a terminal, periodic lines elsewhere, and the position when it is stopped."""

# ruff: noqa: PLC0415  -- each command imports what it needs, so that `--help` answers at once

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import typer

from replicator.terminal.output import count_text, size_text

if TYPE_CHECKING:
    from formats.messages.delivery_checkpoint import CheckpointKey
    from replicator.restore.plan import RestorePlan
    from replicator.restore.progress import RestoreOutcome, RestoringPartition

LINE_EVERY = 10.0  # seconds, without a terminal


@dataclass(slots=True)
class RestoreStatus:
    """The progress of a restore, also when it is stopped. For one thread."""

    sizes: Mapping[CheckpointKey, int]  # stored bytes left at the start, by partition
    follow: bool
    show: Callable[[RestoreStatus], None]
    records: int = 0
    size_bytes: int = 0
    done_bytes: int = 0  # approximate stored bytes of what is delivered
    partitions_done: int = 0
    is_counted: bool = True  # whether records are counted: not those of running Spark tasks
    partitions: int = field(init=False)
    whole_bytes: int = field(init=False)

    def __post_init__(self) -> None:
        self.whole_bytes = max(sum(self.sizes.values()), 1)  # computed once, not in every turn
        self.partitions = len(self.sizes)

    def update(self, partitions: Sequence[RestoringPartition]) -> None:
        """Called in every turn of a restore in this process."""
        self.records = sum(p.records for p in partitions)
        self.size_bytes = sum(p.size_bytes for p in partitions)
        self.done_bytes = int(sum(p.share * self.sizes.get(p.plan.key, 0) for p in partitions))
        self.partitions_done = sum(p.is_over for p in partitions)
        self.partitions = len(partitions)
        self.show(self)

    def update_on_spark(self, done: int, total: int) -> None:
        """Called when a Spark task ends. The progress of running tasks is not known here."""
        self.partitions_done, self.partitions = done, total
        self.done_bytes = self.whole_bytes * done // max(total, 1)
        self.is_counted = False
        self.show(self)

    def text(self) -> str:
        delivered = f"{count_text(self.records)} records, {size_text(self.size_bytes)} restored"
        if self.follow:
            return f"{delivered} so far, following {self.partitions} partitions"
        over = f"{self.partitions_done} of {self.partitions} partitions are over"
        return f"{delivered}, {100 * self.done_bytes // self.whole_bytes} %, {over}" if self.is_counted else over

    def stopped(self, outcomes: Sequence[RestoreOutcome]) -> str:
        """The totals of `outcomes`, which include what was delivered after the last turn."""
        records, size_bytes = sum(o.records for o in outcomes), sum(o.size_bytes for o in outcomes)
        over = sum(o.is_done or bool(o.failed) for o in outcomes)
        how = f"following {self.partitions} partitions" if self.follow else f"{over} of {len(outcomes)} partitions over"
        return (
            f"stopped with {count_text(records)} records, {size_text(size_bytes)} restored, {how}; "
            "run the same command again to resume it"
        )


@contextmanager
def progress(plan: RestorePlan, *, follow: bool, quiet: bool) -> Iterator[RestoreStatus]:
    """Show progress on stderr. `quiet`: show nothing; signals are still answered."""
    sizes = {partition.key: partition.size_bytes for partition in plan.partitions}
    if quiet:
        yield RestoreStatus(sizes, follow, lambda _: None)
    elif not sys.stderr.isatty():
        yield RestoreStatus(sizes, follow, _Lines())
    else:
        with _bar(follow=follow) as show:
            yield RestoreStatus(sizes, follow, show)


@dataclass(slots=True)
class _Lines:
    """A line at the start, then at most every `LINE_EVERY` seconds if it changed."""

    _next_at: float = field(default_factory=time.monotonic)
    _last: str = ""

    def __call__(self, standing: RestoreStatus) -> None:
        if time.monotonic() < self._next_at:
            return
        self._next_at = time.monotonic() + LINE_EVERY
        text = standing.text()
        if text != self._last:
            self._last = text
            typer.echo(text, err=True)


@contextmanager
def _bar(*, follow: bool) -> Iterator[Callable[[RestoreStatus], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    text = TextColumn("{task.description}")
    bar = (text, BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*((text,) if follow else bar), console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task("restored", total=None if follow else 1)

        def show(standing: RestoreStatus) -> None:
            if follow:  # a follower has no end
                shown.update(task, description=standing.text())
            else:
                shown.update(task, total=standing.whole_bytes, completed=standing.done_bytes)

        yield show
