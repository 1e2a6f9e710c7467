"""A flame graph as SVG, of stacks as `py-spy record --format raw` writes them. Pure.

    <module> (main.py:3);run (loop.py:17);ZSTD_compress (libarrow.so.2600) 42

Each box is a function, as wide as the samples in it and in what it called; callers are below. Lines of a function are
one box. Graphs that are drawn with the same `per_sample` compare by their widths.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from html import escape

WIDTH, ROW, LEGEND = 1200, 15, 20  # pixels
NARROWEST = 1.0  # pixels: what is narrower is left out, with what it called
LETTER = 6.2  # pixels, of a label in this font size

_LINE = re.compile(r":\d+\)$")
_WAITS = re.compile(
    r"PyThread_acquire_lock|take_gil|pthread_cond_|pthread_clock|sem_(timed|clock)?wait|epoll_wait|\bpoll \(libc"
)
_IMPORTS = re.compile(r"frozen importlib")
_PYTHON = re.compile(r"\.py:\d+\)")
_ADDRESS = re.compile(r"^0x[0-9a-f]+ ")  # of a function whose name the library does not have


@dataclass(slots=True)
class Box:
    """A function where it was called: `samples` of itself and of what it called."""

    name: str
    samples: int = 0
    called: dict[str, Box] = field(default_factory=dict)


def stacks_of(raw: str) -> Counter[tuple[str, ...]]:
    """Samples by stack, from the outermost function to the innermost. Without threads that wait, some of which py-spy
    takes for busy when it shows libraries, without imports, and without the interpreter's end, the only one to collect
    garbage outside of Python. Raises ValueError for a line of another form."""
    found: Counter[tuple[str, ...]] = Counter()
    for line in raw.splitlines():
        stack, _, count = line.rpartition(" ")
        is_end = "gc_collect_main" in stack and _PYTHON.search(stack) is None
        if is_end or _WAITS.search(stack) or _IMPORTS.search(stack):
            continue
        found[tuple(_ADDRESS.sub("? ", _LINE.sub(")", frame)) for frame in stack.split(";"))] += int(count)
    return found


def boxes(stacks: Mapping[tuple[str, ...], int]) -> Box:
    """The tree of all stacks below a root without a name."""
    root = Box("")
    for stack, count in stacks.items():
        box = root
        box.samples += count
        for name in stack:
            box = box.called.setdefault(name, Box(name))
            box.samples += count
    return root


def svg(root: Box, *, title: str, per_sample: float, unit: float, colours: Mapping[str, tuple[str, str]]) -> str:
    """`per_sample`: pixels of a sample; `unit`: CPU-seconds of a sample. `colours`: by what a box's name matches, in
    the order of trial, its group and its colour."""
    drawn = list(_drawn(root, 0, 0.0, per_sample))
    height = (max((depth for _, depth, _, _ in drawn), default=0) + 1) * ROW + 2 * LEGEND
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="monospace" '
        'font-size="10">',
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text x="4" y="13">{escape(title)}</text>',
        *_legend(height, colours),
    ]
    for box, depth, x, width in drawn:
        y = height - LEGEND - (depth + 1) * ROW
        name = box.name or "all"
        letters = int((width - 4) / LETTER)
        label = name if len(name) <= letters else f"{name[: letters - 1]}…"
        text = f'<text x="{x + 2:.1f}" y="{y + 11}">{escape(label)}</text>' if letters > 2 else ""
        share = f"{escape(name)}: {box.samples * unit:.2f} CPU-s, {box.samples / root.samples:.1%}"
        shape = f'x="{x:.1f}" y="{y}" width="{width:.1f}" height="{ROW - 1}" fill="{_colour(name, colours)}"'
        lines.append(f"<g><title>{share}</title><rect {shape}/>{text}</g>")
    return "\n".join([*lines, "</svg>", ""])


def _drawn(box: Box, depth: int, x: float, per_sample: float) -> Iterator[tuple[Box, int, float, float]]:
    """Box, depth, x and width in pixels of all that are wide enough; the widest of those that are called first."""
    width = box.samples * per_sample
    if width < NARROWEST:
        return
    yield box, depth, x, width
    for called in sorted(box.called.values(), key=lambda one: (-one.samples, one.name)):
        yield from _drawn(called, depth + 1, x, per_sample)
        x += called.samples * per_sample


def _colour(name: str, colours: Mapping[str, tuple[str, str]]) -> str:
    return next((colour for pattern, (_, colour) in colours.items() if re.search(pattern, name)), "#dddddd")


def _legend(height: int, colours: Mapping[str, tuple[str, str]]) -> Iterable[str]:
    x = 4.0
    for group, colour in dict(colours.values()).items():
        yield f'<rect x="{x:.1f}" y="{height - 13}" width="10" height="10" fill="{colour}"/>'
        yield f'<text x="{x + 14:.1f}" y="{height - 4}">{escape(group)}</text>'
        x += 14 + (len(group) + 2) * LETTER
