"""Region names that are probably mistyped. Pure.

Nothing says which regions there are: files of some may not be checked with the others, and an archive outlives its
region. So only a name that differs from a known one by a slip of the hand counts: `us-eest-1` or `useast1` for
`us-east-1`, but neither `us-west-1`, `us-east-2` nor `dc-b` for `dc-a`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

LEAST = 4  # letters of a word, below which one letter is a difference on purpose

_SEPARATORS = re.compile(r"[-_.]")


def meant(name: str, known: Iterable[str]) -> str | None:
    """The name of `known` that was probably meant; None if `name` is one of them, or like none."""
    names = list(known)
    return None if name in names else next((one for one in names if _is_slip(name.lower(), one.lower())), None)


def _is_slip(name: str, other: str) -> bool:
    words, others = _SEPARATORS.split(name), _SEPARATORS.split(other)
    if "".join(words) == "".join(others):
        return True
    differing = [(a, b) for a, b in zip(words, others, strict=False) if a != b]
    if len(words) != len(others) or len(differing) != 1:
        return False
    [(a, b)] = differing
    return min(len(a), len(b)) >= LEAST and a.isalpha() and b.isalpha() and _is_one_edit(a, b)


def _is_one_edit(a: str, b: str) -> bool:
    """One letter more, less or another, or two neighbours swapped. `a` and `b` differ."""
    at = next((n for n, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    rest, other = a[at:], b[at:]
    swapped = len(rest) > 1 and rest[1::-1] + rest[2:] == other
    return swapped or rest[1:] == other[1:] or rest[1:] == other or rest == other[1:]
