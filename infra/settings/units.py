"""Parse and format durations ("5m", "1h30m") and sizes ("100MiB")."""

from __future__ import annotations

import re
from datetime import timedelta

DURATION_EXAMPLES = '"500ms", "30s", "5m", "1h30m", "2d"'
SIZE_EXAMPLES = '"64KiB", "100MiB", "1GiB", "10MB" or a plain number of bytes'

KIB, MIB, GIB, TIB = 1 << 10, 1 << 20, 1 << 30, 1 << 40

_STEPS = (  # largest first, the order required in text
    ("d", timedelta(days=1)),
    ("h", timedelta(hours=1)),
    ("m", timedelta(minutes=1)),
    ("s", timedelta(seconds=1)),
    ("ms", timedelta(milliseconds=1)),
)
_DURATION = re.compile("".join(rf"(?:([0-9]{{1,12}}){unit})?" for unit, _ in _STEPS))
_BYTES = {
    "": 1,
    "B": 1,
    "kB": 10**3,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": KIB,
    "MiB": MIB,
    "GiB": GIB,
    "TiB": TIB,
}
_SIZE = re.compile(r"([0-9]{1,19}) ?([A-Za-z]*)")


def parse_duration(text: str) -> timedelta:
    """Whole numbers with d, h, m, s, ms, largest first. Raises ValueError with examples."""
    match = _DURATION.fullmatch(text.strip())
    if match is None or not text.strip():
        raise ValueError(f"{text!r} is not a duration; write it like {DURATION_EXAMPLES}")
    try:
        return sum((step * int(n) for n, (_, step) in zip(match.groups(), _STEPS, strict=True) if n), timedelta())
    except OverflowError:
        raise ValueError(f"{text!r} is longer than any duration this program can hold") from None


def format_duration(value: timedelta) -> str:
    """Inverse of `parse_duration`, to the millisecond."""
    parts: list[str] = []
    for unit, step in _STEPS:
        count, value = divmod(value, step)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


def format_age(value: timedelta) -> str:
    """Format for people: at most the two largest units, to the second."""
    rest, parts = max(value, timedelta()), list[str]()
    for unit, step in _STEPS[:-1]:
        count, rest = divmod(rest, step)
        if count or parts:
            parts.append(f"{count}{unit}" if count else "")
    return "".join(parts[:2]) or "0s"


def format_rounded_size(size_bytes: int) -> str:
    """Format for people: 1.5 GiB."""
    size = float(size_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < KIB:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= KIB
    return f"{size:.1f} TiB"


def parse_size(value: str | int) -> int:
    """Bytes. KiB, MiB, GiB, TiB are powers of 1024; KB, MB, GB, TB of 1000. Raises ValueError with examples."""
    if isinstance(value, int):
        return value
    match = _SIZE.fullmatch(value.strip())
    if match is None or match[2] not in _BYTES:
        raise ValueError(f"{value!r} is not a size; write it like {SIZE_EXAMPLES}")
    return int(match[1]) * _BYTES[match[2]]


def format_size(size_bytes: int) -> str:
    """Inverse of `parse_size`: the largest binary unit that divides it."""
    for unit, factor in (("TiB", TIB), ("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        if size_bytes and size_bytes % factor == 0:
            return f"{size_bytes // factor}{unit}"
    return str(size_bytes)
