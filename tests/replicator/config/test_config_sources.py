"""The sources of ingress in the configuration."""

from __future__ import annotations

import re

import pytest

from replicator.config import parse
from replicator.config.explain import explain_topic
from tests.replicator.config.config_texts import ingress, only, problems


class TestSources:
    def test_needs_a_queue(self) -> None:
        text = ingress('region = "a"\ntopic = "t"').replace('[sqs]\nqueue = "q"\n', "")
        assert only(text).startswith("sqs: missing: [ingress] reads")
        assert any(p.startswith("sqs: missing") for p in problems(text + "[logs]"))

    @pytest.mark.parametrize(
        ("sources", "wanted"),
        [
            ((), "ingress.sources: missing"),
            (('topic = "t"',), "ingress.sources[0].region: missing"),
            (('region = "a"\ntopic = "^("',), "ingress.sources[0].topic: '^(' is not an expression"),
            (
                ('region = "a"\ntopic = "^t.*"\ndestination_topic = "x"',),
                "sources[0].destination_topic: 'x' is one topic",
            ),
            (
                ('region = "a"\ntopic = "t"\ndestination_topic = "{topics}"',),
                "sources[0].destination_topic: must be a topic",
            ),
            (('region = "a"\ntopic = "__t"',), "sources[0].topic: is an internal topic"),
            (('region = "a"\ntopic = "t"\ndestination_topic = "replicator.x"',), "'replicator.x' is an internal topic"),
            (('region = "here"\ntopic = "t"\ndestination_topic = "t"',), "sources[0].destination_topic: would deliver"),
            (
                ('region = "here"\ntopic = "^t.*"\ndestination_topic = "{topic}"',),
                "sources[0].destination_topic: would deliver",
            ),
            (('region = "a"\ntopic = "t"\nlate_segment_retries = -1',), "late_segment_retries: must be at least 0"),
        ],
    )
    def test_one_problem(self, sources: tuple[str, ...], wanted: str) -> None:
        assert wanted in only(ingress(*sources))

    @pytest.mark.parametrize(
        ("line", "wanted"),
        [
            ("allow_merge = true", "allow_merge: offsets = 'preserve' needs a destination of its own"),
            ('transform = "tests.formats.records.user_transforms:masked_even"', "transform: may leave out records"),
            ("partitions = 3", "partitions: offsets = 'preserve' keeps the source's partitions"),
            ('on_recreate = "follow"', "on_recreate: 'follow' continues with a topic whose offsets begin again"),
            ('on_foreign_data = "append"', "on_foreign_data: 'append' begins after other records"),
        ],
    )
    def test_what_does_not_go_with_the_offsets_of_the_source(self, line: str, wanted: str) -> None:
        source = 'region = "a"\ntopic = "t"\noffsets = "preserve"'
        assert wanted in only(ingress(f"{source}\n{line}"))
        read = parse(ingress(source)).ingress
        assert read is not None
        assert read.preserves_offsets
        assert [one.preserves_offsets for one in read.sources] == [True]

    @pytest.mark.parametrize(
        ("first", "second"),
        [
            # two names, one fixed destination
            (
                'region = "a"\ntopic = "t"\ndestination_topic = "d"',
                'region = "a"\ntopic = "u"\ndestination_topic = "d"',
            ),
            # the default destination of one name of two regions
            ('region = "a"\ntopic = "t"', 'region = "b"\ntopic = "t"'),
            # the same expression of two regions
            ('region = "a"\ntopic = "^t.*"', 'region = "b"\ntopic = "^t.*"'),
            # a name, and an expression that would make the same destination of another topic
            (
                'region = "a"\ntopic = "t"\ndestination_topic = "x.u"',
                'region = "b"\ntopic = "^u.*"\ndestination_topic = "x.{topic}"',
            ),
        ],
    )
    def test_topics_are_never_merged(self, first: str, second: str) -> None:
        assert "allow_merge = true for both" in only(ingress(first, second))
        assert "allow_merge = true for both" in only(ingress(second, first))
        allowed = "\nallow_merge = true"
        assert "allow_merge = true for both" in only(ingress(first + allowed, second))
        assert parse(ingress(first + allowed, second + allowed)).ingress is not None

    @pytest.mark.parametrize(
        ("first", "second"),
        [
            # an exception from an expression keeps its destination: the name wins
            ('region = "a"\ntopic = "^.*"', 'region = "a"\ntopic = "t"\npartitions = 3'),
            ('region = "a"\ntopic = "^t.*"', 'region = "b"\ntopic = "^t.*"\ndestination_topic = "b.{topic}"'),
        ],
    )
    def test_sources_that_are_not_merged(self, first: str, second: str) -> None:
        parse(ingress(first, second))
        parse(ingress(second, first))

    @pytest.mark.parametrize("topic", ["t", "^t.*"])
    def test_a_topic_has_one_destination_in_a_file(self, topic: str) -> None:
        """The second source would never deliver anything."""
        twice = [f'region = "a"\ntopic = "{topic}"\ndestination_topic = "{name}.{{topic}}"' for name in ("one", "two")]
        assert re.search(r"sources\[1\]\.topic: .* sources\[0\], too.*use another file", only(ingress(*twice)))

    def test_a_name_beats_expressions_then_the_first(self) -> None:
        config = parse(
            ingress(
                'region = "a"\ntopic = "^t.*"',
                'region = "a"\ntopic = "^.*"\ndestination_topic = "all.{topic}"',
                'region = "a"\ntopic = "tx"\ndestination_topic = "named"',
            )
        ).ingress
        assert config is not None

        def destination(topic: str, region: str = "a") -> str | None:
            source = config.source_of(region, topic)
            return None if source is None else source.destination(topic)

        assert destination("t1") == "t1.ingress"
        assert destination("u") == "all.u"
        assert destination("tx") == "named"
        assert destination("u", "b") is None

    def test_group_and_topics_are_different_things(self) -> None:
        source = 'region = "a"\ntopic = "t"'
        assert "checkpoint_topic" in only(ingress(source, more='checkpoint_topic = "x"\nsegment_events_topic = "x"'))
        text = ingress(source, more='group_id = "replicator.egress"') + "[egress.topics.a]"
        assert only(text).startswith("ingress.group_id: 'replicator.egress' is also egress.group_id")

    def test_own_topics_are_internal_by_their_names_here(self) -> None:
        text = ingress('region = "a"\ntopic = "t"', more='checkpoint_topic = "cp"') + "[egress.topics.cp]"
        assert only(text).startswith("egress.topics.cp: is an internal topic")

    def test_delivery_is_exactly_once_by_default(self) -> None:
        source = 'region = "a"\ntopic = "t"'
        config = parse(ingress(source))
        assert config.ingress is not None
        assert config.ingress.delivery == "exactly-once"
        assert only(ingress(source, more='delivery = "once"')).startswith("ingress.delivery: ")

    @pytest.mark.parametrize(
        ("source", "archived", "endless"),
        [
            ("^orders.*", "^orders.*", True),
            ("^orders\\\\..*", "^.*", True),
            ("orders", "^orders.*", False),  # orders.ingress is archived, but not delivered
            ("^orders", "^orders.*", False),
            ("^orders.*", "orders", False),
        ],
    )
    def test_a_loop_within_one_file_is_refused(self, source: str, archived: str, endless: bool) -> None:
        text = ingress(f'region = "here"\ntopic = "{source}"') + f'[egress.topics."{archived}"]'
        if endless:
            assert only(text).startswith("ingress.sources[0].topic: delivers orders")
        else:
            parse(text)

    def test_explain(self) -> None:
        text = ingress('region = "a"\ntopic = "^t.*"', 'region = "b"\ntopic = "u"')
        config = parse(text + '[egress.topics."^.*"]\n[retention.topics.t1]\n')
        assert [answer.text for answer in explain_topic(config, "t1")] == [
            "egress of here: t1: selected, by the expression ^.*",
            "ingress from a: t1 → t1.ingress: selected, by the expression ^t.*; named '{topic}.ingress', as neither "
            "destination_topic nor replication_policy is set",
            "ingress from b: t1: not selected, because no name or expression matches it (tried: u)",
            "retention of here: t1: selected, by its name",
        ]
