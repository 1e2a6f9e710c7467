"""Pictures in SVG: lag over time, and the segment map. Pure.

An SVG holds shapes only and is stretched to the width of its place; texts beside it are HTML, so that they keep their
size on a narrow screen. Colours are classes of the style sheet.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from replicator.console.markup import Markup, element, fragment
from replicator.console.texts import count, moment, size

WIDTH, HEIGHT, ROW = 1000, 120, 26
NARROWEST = 1.5  # of a block, in a picture that is WIDTH wide
_HOLES = {
    "retention": "removed by retention",
    "accepted": "accepted by an operator",
    "loss": "lost",
    "recorded": "recorded gap",
    "unrecorded": "missing, and not recorded",
}


def lag_chart(points: Sequence[tuple[str, int | None]], title: str) -> Markup:
    """`points`: time and lag. A time at which the lag was not known breaks the line."""
    known = [(at, lag) for at, lag in points if lag is not None]
    if len(known) < 2:
        return element("p", "Lag over time is drawn from the second refresh on.", class_="quiet")
    top = max(1, *(lag for _, lag in known))
    step = WIDTH / max(len(points) - 1, 1)
    shapes: list[Markup] = []
    for run in _runs([lag for _, lag in points]):
        line = " ".join(f"{n * step:.1f},{HEIGHT - lag / top * (HEIGHT - 6) - 3:.1f}" for n, lag in run)
        first, last = run[0][0] * step, run[-1][0] * step
        shapes.append(
            element("path", d=f"M{first:.1f},{HEIGHT} L{line.replace(' ', ' L')} L{last:.1f},{HEIGHT} Z", class_="area")
        )
        shapes.append(element("polyline", points=line, class_="line"))
    picture = element(
        "svg",
        element("title", title),
        *shapes,
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        preserveAspectRatio="none",
        role="img",
        class_="chart",
    )
    newest = known[-1][1]
    label = f"{title}: now {count(newest)}, at most {count(max(lag for _, lag in known))} of {len(known)} refreshes"
    return element(
        "figure",
        element("div", element("span", count(top)), element("span", "0"), class_="y-axis", aria_hidden="true"),
        picture,
        element("div", moment(points[0][0]), moment(points[-1][0]), class_="x-axis"),
        element("figcaption", label),
        class_="lag",
    )


def sparkline(values: Sequence[int | None]) -> Markup:
    """Of a row in a table; its number stands beside it."""
    known = [value for value in values if value is not None]
    if len(known) < 2:
        return fragment()
    top = max(*known, 1)
    step = 100 / max(len(values) - 1, 1)
    shapes = [
        element("polyline", points=" ".join(f"{n * step:.1f},{19 - lag / top * 18:.1f}" for n, lag in run))
        for run in _runs(values)
    ]
    return element("svg", *shapes, viewBox="0 0 100 20", preserveAspectRatio="none", class_="spark", aria_hidden="true")


def _runs(values: Sequence[int | None]) -> Iterator[Sequence[tuple[int, int]]]:
    """Unbroken runs of known values, each with its index."""
    run: list[tuple[int, int]] = []
    for n, value in enumerate(values):
        if value is not None:
            run.append((n, value))
        elif run:
            yield run
            run = []
    if run:
        yield run


def incarnation_picture(one: Mapping[str, Any], marks: Sequence[tuple[str, str, int | None]]) -> Markup:
    """The levels of one incarnation over its offsets, and below them its holes. `marks`: class, name and offset."""
    start, end = one["start"], one["next_offset"]
    if start is None or end is None:
        return element("p", "Nothing is stored.", class_="quiet")
    places = [(kind, name, at) for kind, name, at in marks if at is not None]
    low = min([start, *(at for _, _, at in places)])
    high = max([end, *(at for _, _, at in places)])
    scale = _Scale(low, max(high, low + 1))
    rows = []
    for level in one["levels"]:
        shapes = [
            element(
                "rect",
                element("title", _block_text(level["level"], block)),
                x=scale.at(block["start"]),
                width=scale.width(block["start"], block["end"] + 1),
                y=3,
                height=ROW - 6,
                class_=f"block level-{min(level['level'], 5)}",
            )
            for block in level["blocks"]
        ]
        what = f"{segments_text(level['segments'])}, {size(level['bytes'])}"
        rows.append(_row(f"level {level['level']}", what, shapes, places, scale))
    holes = [
        element(
            "rect",
            element("title", f"{hole['start']} to {hole['end']}: {_HOLES[hole['kind']]} {hole['reason']}".strip()),
            x=scale.at(hole["start"]),
            width=scale.width(hole["start"], hole["end"] + 1),
            y=3,
            height=ROW - 6,
            class_=f"hole {hole['kind']}",
        )
        for hole in one["holes"]
    ]
    ground = element("rect", x=scale.at(start), width=scale.width(start, end), y=10, height=6, class_="covered")
    number = len(one["holes"]) + one["more_holes"]
    rows.append(_row("gaps", f"{count(number)}" if number else "none", [ground, *holes], places, scale))
    return element(
        "div",
        *rows,
        element("div", element("span", low), element("span", scale.high), class_="offsets"),
        class_="map",
    )


def _row(
    name: str, what: str, shapes: Sequence[Markup], places: Sequence[tuple[str, str, int]], scale: _Scale
) -> Markup:
    marks = [
        element(
            "line",
            element("title", f"{label}: {at}"),
            x1=scale.at(at),
            x2=scale.at(at),
            y1=0,
            y2=ROW,
            class_=f"mark {k}",
        )
        for k, label, at in places
    ]
    return element(
        "div",
        element("div", element("b", name), " ", element("span", what, class_="quiet"), class_="row-label"),
        element(
            "svg",
            element("title", f"{name}: {what}"),
            *shapes,
            *marks,
            viewBox=f"0 0 {WIDTH} {ROW}",
            preserveAspectRatio="none",
            role="img",
            class_="row",
        ),
        class_="map-row",
    )


def _block_text(level: int, block: Mapping[str, Any]) -> str:
    what = f"{segments_text(block['segments'])}, {size(block['bytes'])}"
    return f"level {level}, {block['start']} to {block['end']}: {what}"


def segments_text(number: int) -> str:
    return "1 segment" if number == 1 else f"{count(number)} segments"


class _Scale:
    def __init__(self, low: int, high: int) -> None:
        self.low, self.high = low, high
        self._factor = WIDTH / (high - low)

    def at(self, offset: int) -> str:
        return f"{(offset - self.low) * self._factor:.2f}"

    def width(self, start: int, next_offset: int) -> str:
        return f"{max((next_offset - start) * self._factor, NARROWEST):.2f}"
