"""Samples of topic names from expressions: each is selected by its expression."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from formats.incarnation import LEGAL_NAME
from formats.topic_selection import TopicPattern
from replicator.config.samples import MOST, samples


@pytest.mark.parametrize(
    ("expression", "some"),
    [
        ("orders", {"orders"}),
        ("^.*", {"x"}),
        ("^orders[.].*", {"orders.x"}),
        ("^orders\\..+$", {"orders.x"}),
        ("^(orders|payments)\\.[a-z]+", {"orders.a", "payments.a"}),
        ("^(?:eu|us)\\.(?P<name>[a-z0-9-]+)(\\.copy)?", {"eu.a", "us.a.copy"}),
        ("^(?!eu\\.).*", {"x"}),
        ("^[^.]+$", {"x"}),
        ("^v\\d{2}\\.\\w+", {"v11.x"}),
        ("^a|b$", {"a", "b"}),
        ("^x{3,}y??", {"xxx", "xxxy"}),
        ("^(?i:ab)", {"ab"}),
        ("^(a)\\1", set()),  # a back reference: not supported, so no samples
    ],
)
def test_supported_expressions_have_samples(expression: str, some: set[str]) -> None:
    found = samples(TopicPattern(expression))
    assert some <= set(found)
    assert bool(found) == bool(some)


PIECE = st.sampled_from(
    ["a", "b", ".", "\\.", "-", "[a-c]", "[^.]", "\\d", "\\w", "(a|b)", "(?:x|y.)", "(?!z)", "^", "$"]
)
SIGN = st.sampled_from(["", "", "*", "+", "?", "{2}", "{1,3}", "*?", "+?"])


@given(st.lists(st.tuples(PIECE, SIGN), max_size=8))
@settings(deadline=None)
def test_samples_match_any_expression(parts: list[tuple[str, str]]) -> None:
    text = "^" + "".join(piece + sign for piece, sign in parts)
    try:
        pattern = TopicPattern(text)
    except ValueError:
        return
    found = samples(pattern)
    assert len(found) == len(set(found)) <= MOST
    for name in found:
        assert re.fullmatch(text, name)
        assert LEGAL_NAME.fullmatch(name)


@given(st.text("ab.|()[]{}\\^$*+?!:<=-1", max_size=12))
@settings(deadline=None)
def test_rubbish_takes_no_time_and_raises_nothing(text: str) -> None:
    try:
        pattern = TopicPattern(f"^{text}")
    except ValueError:
        return
    assert all(map(pattern.matches, samples(pattern)))
