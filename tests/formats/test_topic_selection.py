from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.topic_selection import DEFAULT_EXCLUDES, TopicPattern, TopicRule, explain, is_internal, select

OWN = frozenset({"my.events", "my.checkpoints"})


def rules(*texts: str) -> list[TopicRule[str]]:
    """Each rule's settings are its own pattern, to see which one won."""
    return [TopicRule(TopicPattern(text), text) for text in texts]


class TestPatterns:
    def test_a_name_is_not_an_expression(self) -> None:
        assert TopicPattern("a.b").matches("a.b")
        assert not TopicPattern("a.b").matches("axb")

    @pytest.mark.parametrize(("name", "wanted"), [("ab", True), ("abc", False), ("xab", False), ("AB", False)])
    def test_an_expression_matches_the_whole_name(self, name: str, wanted: bool) -> None:
        assert TopicPattern("^ab").matches(name) is wanted

    @pytest.mark.parametrize("text", ["^(", "^[", "^a{99999999999999999999}", "^" + "(" * 5000, "^a(?i)", "^[[a]b"])
    def test_a_bad_expression(self, text: str) -> None:
        with pytest.raises(ValueError, match="is not an expression"):
            TopicPattern(text)

    @pytest.mark.parametrize("text", ["", ".", "..", "a/b", "a b", "é", "a" * 250, "*", "a.*"])
    def test_a_bad_name(self, text: str) -> None:
        with pytest.raises(ValueError, match="is not a topic name"):
            TopicPattern(text)

    def test_equal_by_text(self) -> None:
        assert TopicPattern("^a") == TopicPattern("^a") != TopicPattern("a")


class TestInternal:
    @pytest.mark.parametrize(
        "name", ["__consumer_offsets", "__", "replicator.x", "replicator.", "_control", *sorted(OWN)]
    )
    def test_internal(self, name: str) -> None:
        assert is_internal(name, OWN)

    @pytest.mark.parametrize("name", ["_schemas", "replicatorx", "replicator", "my.replicator.x", "a__b", "_controls"])
    def test_not_internal(self, name: str) -> None:
        assert not is_internal(name, OWN)


class TestSelect:
    def test_a_name_beats_expressions_before_it(self) -> None:
        assert select(["orders"], rules("^.*", "orders"), OWN) == {"orders": "orders"}

    def test_of_two_expressions_the_first_in_the_file(self) -> None:
        assert select(["orders"], rules("^ord.*", "^.*"), OWN) == {"orders": "^ord.*"}
        assert select(["orders"], rules("^.*", "^ord.*"), OWN) == {"orders": "^.*"}

    def test_of_the_same_name_twice_the_first(self) -> None:
        twice = [TopicRule(TopicPattern("a"), 1), TopicRule(TopicPattern("a"), 2)]
        assert select(["a"], twice, OWN) == {"a": 1}
        verdict = explain("a", twice, OWN)
        assert verdict.rule is not None
        assert verdict.rule.settings == 1

    def test_internal_topics_are_never_selected(self) -> None:
        names = ["__consumer_offsets", "replicator.checkpoint", "_control", "my.events", "a"]
        assert select(names, rules("^.*", "my.events", "_control"), OWN) == {"a": "^.*"}

    def test_the_order_of_names_stays(self) -> None:
        assert list(select(["b", "c", "a"], rules("^.*"), OWN)) == ["b", "c", "a"]

    def test_no_rule_selects_nothing(self) -> None:
        assert select(["a"], [], OWN) == {}


class TestExplain:
    @pytest.mark.parametrize(
        ("name", "wanted"),
        [
            ("orders", "orders: selected, by its name; a name beats ^ord.*, ^.*"),
            ("ordinal", "ordinal: selected, by the expression ^ord.*; it comes before ^.*, the first in the file wins"),
            ("x", "x: selected, by the expression ^.*"),
            ("__x", "internal: names that begin with __ belong to Kafka"),
            ("replicator.x", "internal: names that begin with replicator. belong to the replicator"),
            ("my.events", "internal: it is one of the replicator's own topics"),
            ("_control", "internal: the archive keeps its control objects under this name"),
        ],
    )
    def test_the_reason_is_given(self, name: str, wanted: str) -> None:
        assert wanted in explain(name, rules("^ord.*", "orders", "^.*"), OWN).text

    def test_the_tried_rules_are_listed(self) -> None:
        verdict = explain("x", rules("a", "^b.*"), OWN)
        assert not verdict.selected
        assert verdict.text == "x: not selected, because no name or expression matches it (tried: a, ^b.*)"


class TestExcludes:
    @staticmethod
    def with_excludes(exclude: list[str], *texts: str) -> list[TopicRule[str]]:
        return [TopicRule(TopicPattern(t), t, [TopicPattern(e) for e in exclude], DEFAULT_EXCLUDES) for t in texts]

    @pytest.mark.parametrize(
        ("exclude", "texts", "name", "selected", "why"),
        [
            (["^tmp.*"], ["^.*"], "tmp1", False, "though ^.* matches it: by the exclude ^tmp.*, which beats every"),
            (["^tmp.*"], ["^.*", "tmp1"], "tmp1", False, "by the exclude ^tmp.*"),
            (["tmp1"], ["tmp1"], "tmp1", False, "by the exclude tmp1"),
            (["tmp1"], ["^.*"], "tmp2", True, "by the expression ^.*"),
            ([], ["^.*"], "a.replica", False, r"the default exclude ^.*\.replica: only a rule with its own name"),
            ([], ["^.*", "a.replica"], "a.replica", True, "selected, by its name; a name beats the default"),
            ([], ["^.*"], "mm2-x.internal", False, r"the default exclude ^mm2.*\.internal"),
            ([], ["^.*"], "b.checkpoints.internal", False, r"the default exclude ^.*\.checkpoints\.internal"),
            ([], ["^.*"], "a-internal", True, "by the expression ^.*"),
            ([], ["^.*"], ".hidden", False, r"the default exclude ^\..*"),
            ([], ["^.*", "__x"], "__x", False, "belong to Kafka"),
        ],
    )
    def test_precedence(self, exclude: list[str], texts: list[str], name: str, selected: bool, why: str) -> None:
        chosen = self.with_excludes(exclude, *texts)
        assert (name in select([name], chosen, OWN)) is selected
        verdict = explain(name, chosen, OWN)
        assert (verdict.selected, why in verdict.text) == (selected, True), verdict.text

    def test_an_exclude_belongs_to_its_rule(self) -> None:
        first = TopicRule(TopicPattern("^.*"), 1, [TopicPattern("a")])
        assert select(["a", "b"], [first, TopicRule(TopicPattern("^.*"), 2)], OWN) == {"a": 2, "b": 1}
        named = TopicRule(TopicPattern("a"), 3, [TopicPattern("a")])
        assert select(["a"], [named, TopicRule(TopicPattern("a"), 4)], OWN) == {"a": 4}
        assert explain("a", [named, TopicRule(TopicPattern("a"), 4)], OWN).selected


names = st.text("ab._", min_size=1, max_size=4).filter(lambda n: n not in (".", ".."))
patterns = names | st.sampled_from(["^.*", "^a.*", "^[ab]+", "^.b", "^replicator.*", "^__.*"])


topic_names = names | st.sampled_from(["__x", "replicator.a", "a.replica", "b-internal", "mm2a.internal"])
defaults = st.sampled_from([(), DEFAULT_EXCLUDES])


@given(st.lists(topic_names), st.lists(patterns), st.lists(patterns, max_size=2), defaults, st.sets(names))
def test_select_and_explain_never_disagree(
    topics: list[str], texts: list[str], exclude: list[str], default: tuple[TopicPattern, ...], own: set[str]
) -> None:
    ruled = [replace(one, exclude=list(map(TopicPattern, exclude)), default_exclude=default) for one in rules(*texts)]
    chosen = select(topics, ruled, own)
    for topic in topics:
        verdict = explain(topic, ruled, own)
        assert verdict.selected == (topic in chosen)
        if verdict.rule is not None:
            assert verdict.rule.settings == chosen[topic]


def fits(text: str, topic: str) -> bool:
    return bool(re.fullmatch(text, topic)) if text.startswith("^") else text == topic


@given(st.lists(topic_names), st.lists(patterns), st.lists(patterns, max_size=2), st.booleans(), st.sets(names))
def test_the_rules_of_selection(
    topics: list[str], texts: list[str], exclude: list[str], by_default: bool, own: set[str]
) -> None:
    """A different algorithm than the code's: rank every matching rule, take the best."""
    default = DEFAULT_EXCLUDES if by_default else ()
    ruled = [replace(one, exclude=list(map(TopicPattern, exclude)), default_exclude=default) for one in rules(*texts)]
    chosen = select(topics, ruled, own)
    for topic in topics:
        ranked = sorted((text.startswith("^"), n, text) for n, text in enumerate(texts) if fits(text, topic))
        if by_default and (topic.endswith((".replica", ".internal")) or topic.startswith((".", "__"))):
            ranked = [one for one in ranked if not one[0]]
        is_ours = topic in own or topic.startswith(("__", "replicator."))
        refused = is_ours or not ranked or any(fits(text, topic) for text in exclude)
        assert chosen.get(topic) == (None if refused else ranked[0][2])


def test_a_pattern_matches_any_of_several_names() -> None:
    names = ["billing", "orders.eu"]
    assert TopicPattern("^orders\\..*").matches_any(names)
    assert TopicPattern("billing").matches_any(names)
    assert not TopicPattern("^none").matches_any(names)
    assert not TopicPattern("none").matches_any(names)
