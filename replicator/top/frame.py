"""A frame: lines of text that fit a terminal, the table at whatever height is left. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from infra.settings.units import format_age
from replicator.top.snapshot import FlowName, Group, Row, Snapshot
from replicator.top.view import KEYS, TopView

SLOW = timedelta(seconds=10)  # a reading that takes longer is named
MOST_PROBLEMS = 3  # below the table; `!` shows them all
_HEAD = ("flow", "partition", "behind", "rate/s", "oldest", "left", "state")
_TO_THE_RIGHT = (2, 3, 4, 5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    lines: Sequence[str]
    table_lines: int  # all there are, of which a page is shown
    page: int


def frame(
    found: Snapshot | None,
    view: TopView,
    *,
    width: int,
    height: int | None,
    now: datetime,
    trouble: str = "",
    interval: timedelta | None = None,
    since: datetime | None = None,
) -> Frame:
    """`found`: the last reading; None: there was none yet. `height`: None for as many lines as there are. `trouble`:
    why the state could not be read since then; `since`: when the reading under way began. No line is longer than
    `width`, and all signs are printable."""
    head = list(_header(found, view, now, _trouble(trouble, now, since), interval))
    table, body = _table(found, view)
    foot = [] if view.shows_problems else list(_problems(found))
    if interval is not None:
        foot.append(KEYS)
    room = len(body) if height is None else max(height - len(head) - len(table) - len(foot), 0)
    first = min(view.first, max(len(body) - room, 0))
    shown = list(body[first : first + room])
    if height is not None:
        shown += [""] * (room - len(shown))
    lines = [*head, *table, *shown, *foot]
    lines = lines if height is None else lines[:height]
    return Frame(lines=[_cut(line, width) for line in lines], table_lines=len(body), page=room)


def _header(
    found: Snapshot | None, view: TopView, now: datetime, trouble: str, interval: timedelta | None
) -> Iterator[str]:
    if found is None:
        yield f"reading ...{trouble}"
        return
    every = "" if interval is None else f"  every {interval.total_seconds():g} s"
    stale = f"  {format_age(now - found.at)} old{trouble}" if trouble else ""
    problems = f"{len(found.problems)} problem{'' if len(found.problems) == 1 else 's'}"
    yield f"region {found.region}  {found.at.strftime('%H:%M:%S')} UTC{every}  {problems}  by {view.order}{stale}"
    for group in found.groups:
        yield _group(group, [row for row in found.rows if row.flow is group.flow], found)
    yield from found.sources


def _trouble(trouble: str, now: datetime, since: datetime | None) -> str:
    """Why there is no newer reading; empty: one is expected soon."""
    failed = f"  could not be read: {' '.join(trouble.split())}" if trouble else ""
    if since is None or now - since < SLOW:
        return failed
    return f"{failed}  no answer for {format_age(now - since)}: a cluster or the bucket is slow, or away"


def _group(group: Group, rows: Sequence[Row], found: Snapshot) -> str:
    rates = [row.rate for row in rows if row.rate is not None]
    parts = [
        f"{_count(group.members, 'process', 'processes')} in {group.name}" if group.members else "NO PROCESS RUNS",
        _count(len(rows), "partition", "partitions"),
        f"{'at least ' if any(row.is_least for row in rows) else ''}{sum(row.behind for row in rows):,} behind",
    ]
    if rates:
        parts.append(f"{sum(rates):,.0f}/s")
    ages = [row.oldest for row in rows if row.oldest is not None]
    if ages:
        parts.append(f"oldest {format_age(max(ages))}")
    if group.flow is FlowName.DELIVER and found.complete_as_of is not None:
        parts.append(f"complete as of {format_age(found.at - found.complete_as_of)} ago")
    parts += [f"{group.parked} PARKED"] if group.parked else []
    parts += [_count(group.gaps, "gap", "gaps")] if group.gaps else []
    return f"{group.flow}  {', '.join(parts)}"


def _count(count: int, one: str, many: str) -> str:
    return f"{count:,} {one if count == 1 else many}"


def _table(found: Snapshot | None, view: TopView) -> tuple[Sequence[str], Sequence[str]]:
    """The head, and the lines below it."""
    if found is None:
        return [], []
    if view.shows_problems:
        return ["", "problems"], [f"! {one}" for one in found.problems] or ["none"]
    rows = [_cells(row) for row in view.ordered(found.rows)]
    head = [*_HEAD]
    head[1] = "topic" if view.by_topic else "partition"
    widths = [max(len(row[n]) for row in [head, *rows]) for n in range(len(head))]
    lines = [_line(row, widths) for row in [head, *rows]]
    return ["", lines[0]], lines[1:] or ["nothing is archived or delivered yet"]


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = [
        cell.rjust(width) if n in _TO_THE_RIGHT else cell.ljust(width)
        for n, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
    return "  ".join(padded).rstrip()


def _cells(row: Row) -> Sequence[str]:
    left = ""
    if row.behind and row.rate:
        left = format_age(timedelta(seconds=round(row.behind / row.rate)))
    return (
        row.flow,
        row.name if row.partitions == 1 else f"{row.name} ({row.partitions})",
        "-" if row.is_least and not row.behind else f"{row.behind:,}",
        "-" if row.rate is None else f"{row.rate:,.0f}",
        "" if row.oldest is None else format_age(row.oldest),
        left,
        row.state,
    )


def _problems(found: Snapshot | None) -> Iterator[str]:
    problems = () if found is None else found.problems
    for one in problems[:MOST_PROBLEMS]:
        yield f"! {one}"
    if len(problems) > MOST_PROBLEMS:
        yield f"! and {len(problems) - MOST_PROBLEMS} more"


def _cut(line: str, width: int) -> str:
    line = "".join(sign if sign.isprintable() else " " for sign in line)  # a reason may quote anything
    return line if len(line) <= width else f"{line[: max(width - 1, 0)]}…"
