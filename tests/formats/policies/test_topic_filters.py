"""A user's topic filter beside the rules of the configuration."""

from __future__ import annotations

import pytest

from formats.errors import PluginFailed
from formats.policies.topic_filters import topic_filter
from formats.topic_selection import TopicPattern, TopicRule, explain, select

USER = "tests.formats.policies.user_policies"


def rules(filter_name: str, *texts: str) -> list[TopicRule[str]]:
    return [TopicRule(TopicPattern(text), text, (topic_filter(f"{USER}:{filter_name}"),)) for text in texts]


def test_what_the_filter_refuses_is_excluded_even_by_its_name() -> None:
    chosen = rules("NoTemporary", "^.*", "tmp1")
    assert select(["orders", "tmp1", "tmp2"], chosen, ()) == {"orders": "^.*"}
    assert f"by the exclude of topic_filter {USER}:NoTemporary" in explain("tmp1", chosen, ()).why


@pytest.mark.parametrize(
    ("name", "topic", "why"), [("FailsForSome", "forbidden", "raised KeyError"), ("SaysMaybe", "a", "no bool")]
)
def test_a_filter_that_fails_is_an_error_and_no_answer(name: str, topic: str, why: str) -> None:
    for ask in (lambda: select([topic], rules(name, "^.*"), ()), lambda: explain(topic, rules(name, "^.*"), ())):
        with pytest.raises(PluginFailed, match=why):
            ask()


@pytest.mark.parametrize(
    ("name", "why"),
    [("NoFilter", "lacks should_replicate_topic"), ("Absent", "is not found"), ("NO_CLASS", "no class")],
)
def test_what_is_refused_at_the_start(name: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        topic_filter(f"{USER}:{name}")
