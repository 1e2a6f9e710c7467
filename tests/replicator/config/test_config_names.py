"""Settings that name topics here, and that filter topics and groups."""

from __future__ import annotations

import pytest

from replicator.config import parse
from replicator.config.explain import Explanation, explain_group, explain_topic
from replicator.config.show import to_tables, to_toml
from tests.replicator.config.config_texts import SMALL, ingress, only


class TestReplicationPolicies:
    @staticmethod
    def destination(*sources: str, more: str = "", topic: str = "t") -> str | None:
        settings = parse(ingress(*sources, more=more)).ingress
        assert settings is not None
        source = settings.source_of("a", topic)
        return None if source is None else source.destination(topic)

    @pytest.mark.parametrize(
        ("source", "more", "wanted"),
        [
            ("", "", "t.ingress"),
            ('replication_policy = "default"', "", "a.t"),
            ('replication_policy = "identity"', "", "t"),
            ("", 'replication_policy = "default"', "a.t"),
            ("", 'replication_policy = "default"\nreplication_policy_separator = "__"', "a__t"),
            ('replication_policy_separator = "-"', 'replication_policy = "default"', "a-t"),
            ('alias = "east"', 'replication_policy = "default"', "east.t"),
            ('replication_policy = "identity"', 'replication_policy = "default"', "t"),
            ('destination_topic = "{topic}.copy"', 'replication_policy = "default"', "t.copy"),
            ('replication_policy = "tests.formats.policies.user_policies:Suffixed"', "", "t-from-a"),
        ],
    )
    def test_names(self, source: str, more: str, wanted: str) -> None:
        assert self.destination(f'region = "a"\ntopic = "^t.*"\n{source}', more=more) == wanted

    def test_a_sources_policy_beats_the_destination_of_defaults(self) -> None:
        text = ingress('region = "a"\ntopic = "t"\nreplication_policy = "identity"')
        settings = parse(text + '[ingress.defaults]\ndestination_topic = "{topic}.copy"\n').ingress
        assert settings is not None
        assert settings.sources[0].destination("t") == "t"

    @pytest.mark.parametrize(("policy", "nothing"), [("LegacyReplicationPolicy", True), ("identity", False)])
    def test_the_legacy_policy_syncs_nothing_but_records(self, policy: str, nothing: bool) -> None:
        settings = parse(ingress('region = "a"\ntopic = "t"', more=f'replication_policy = "{policy}"')).ingress
        assert settings is not None
        assert settings.sources[0].syncs_nothing is nothing

    @pytest.mark.parametrize(
        ("source", "more", "wanted"),
        [
            ('replication_policy = "defalt"', "", "sources[0].replication_policy: 'defalt' is no replication policy"),
            ("", 'replication_policy = "x:"', "sources[0].replication_policy: 'x:' is not found"),
            ('replication_policy_separator = "/"', "", "replication_policy_separator: must be 1 to 64"),
            ('alias = "a.b"', 'replication_policy = "default"', "an alias must not contain the separator '.'"),
        ],
    )
    def test_one_problem(self, source: str, more: str, wanted: str) -> None:
        assert wanted in only(ingress(f'region = "a"\ntopic = "t"\n{source}', more=more))

    @pytest.mark.parametrize("policy", ["identity", "LegacyReplicationPolicy"])
    @pytest.mark.parametrize("topic", ["t", "^t.*"])
    def test_topics_are_never_merged(self, policy: str, topic: str) -> None:
        sources = [f'region = "{region}"\ntopic = "{topic}"' for region in ("a", "b")]
        more = f'replication_policy = "{policy}"'
        assert "allow_merge = true for both" in only(ingress(*sources, more=more))
        allowed = [f"{source}\nallow_merge = true" for source in sources]
        assert parse(ingress(*allowed, more=more)).ingress is not None
        parse(ingress(*sources, more='replication_policy = "default"'))

    def test_a_policy_that_fails_for_a_named_topic(self) -> None:
        text = ingress(
            'region = "a"\ntopic = "forbidden"\nreplication_policy = "tests.formats.policies.user_policies:Suffixed"'
        )
        assert "raised KeyError: 'no such customer'" in only(text)

    def test_explain_says_what_a_topic_is_called_and_what_comes_back(self) -> None:
        config = parse(ingress('region = "a"\ntopic = "^.*"', more='replication_policy = "default"'))
        [orders], [back] = explain_topic(config, "orders"), explain_topic(config, f"{config.region}.orders")
        assert orders.text == (
            "ingress from a: orders → a.orders: selected, by the expression ^.*; named by the replication policy "
            "'default' with alias 'a' and separator '.'"
        )
        assert (back.selected, back.destination) == (False, None)
        assert f"it went through {config.region} before" in back.why

    def test_another_region_may_not_have_this_ones_name(self) -> None:
        here = parse(ingress('region = "a"\ntopic = "t"')).region
        text = ingress(f'region = "a"\ntopic = "t"\nreplication_policy = "identity"\nalias = "{here}"')
        assert "sources[0].alias" in only(text)

    def test_show_reads_back(self) -> None:
        text = ingress('region = "a"\ntopic = "t"', more='replication_policy = "default"')
        config = parse(text)
        again = parse(to_toml(to_tables(config)))
        assert again.ingress == config.ingress


class TestFilters:
    EGRESS = (
        '[egress]\nexclude = ["^tmp.*", "secret"]\ngroups = ["^b.*"]\ngroups_exclude = ["bad"]\n[egress.topics."^.*"]\n'
    )

    def test_topics_and_groups_of_egress(self) -> None:
        config = parse(SMALL + self.EGRESS)

        def selections(name: str) -> list[bool]:
            return [answer.selected for answer in (*explain_topic(config, name), *explain_group(config, name))]

        assert [selections(name) for name in ("billing", "tmp1", "secret", "bad", "x.replica")] == [
            [True, True],
            [False, False],
            [False, False],
            [True, False],
            [False, False],
        ]
        assert not explain_group(config, "replicator.egress")[0].selected

    def test_a_group_of_a_source_is_explained_by_ingress(self) -> None:
        source = 'region = "us"\ntopic = "^.*"\nreplication_policy = "default"'

        def answer(groups: str, name: str = "shop.a") -> Explanation:
            [found] = explain_group(parse(ingress(source) + groups), name)
            return found

        assert answer("\n[groups]\nsync = true\n").text == (
            "groups from us: shop.a: selected, because [groups] sync = true, if egress.groups of the file of us "
            "selects it; its translated offsets are committed here while it has no members here; its translated "
            "offsets are written to us.checkpoints.internal"
        )
        assert answer("").text == (
            "groups from us: shop.a: not selected, because [groups] sync = false: nothing is committed for it here; "
            "its translated offsets are written to us.checkpoints.internal"
        )
        assert not answer("\n[groups]\nsync = true\n", "replicator.x").selected

    def test_what_is_done_with_a_group_of_this_region(self) -> None:
        [found] = explain_group(parse(SMALL + self.EGRESS), "billing")
        assert "its committed offsets are stored beside the archive" in found.text
        assert "In this version" not in found.text

    def test_no_group_by_default(self) -> None:
        config = parse(SMALL + '[egress.topics."^.*"]\n')
        assert [answer.text for answer in explain_group(config, "billing")] == [
            "groups of us-east-1: billing: not selected, because [egress] groups is empty: no group is replicated"
        ]

    def test_an_exclude_belongs_to_its_source(self) -> None:
        source = 'region = "a"\ntopic = "^t.*"\nexclude = ["^t2"]'
        settings = parse(ingress(source, 'region = "a"\ntopic = "t3"\nexclude = ["t4"]')).ingress
        assert settings is not None
        assert [settings.source_of("a", name) is not None for name in ("t1", "t2", "t3", "t.replica")] == [
            True,
            False,
            True,
            False,
        ]

    @pytest.mark.parametrize(
        ("text", "wanted"),
        [
            ('exclude = ["^("]', "egress.exclude: item 0: '^(' is not an expression"),
            ("groups = [1]", "egress.groups: item 0: must be a text"),
            ('groups = [" "]', "egress.groups: item 0: a group id must not be empty"),
            ('topic_filter = "x"', "egress.topic_filter: 'x' is not found: neither package.module:Class, nor"),
            ('group_filter = "x:"', "egress.group_filter: 'x:' is not found: not package.module:Class"),
        ],
    )
    def test_one_problem(self, text: str, wanted: str) -> None:
        assert wanted in only(f'{SMALL}[egress]\n{text}\n[egress.topics."^.*"]\n')

    def test_a_users_filter(self) -> None:
        name = "tests.formats.policies.user_policies:NoTemporary"
        config = parse(SMALL + f'[egress]\ntopic_filter = "{name}"\n[egress.topics."^.*"]\n')
        assert not explain_topic(config, "tmp1")[0].selected
        config = parse(ingress(f'region = "a"\ntopic = "^.*"\ntopic_filter = "{name}"'))
        assert [explain_topic(config, topic)[0].selected for topic in ("tmp1", "t")] == [False, True]
        config = parse(SMALL + f'[egress]\ngroups = ["^.*"]\ngroup_filter = "{name}"\n[egress.topics."^.*"]\n')
        assert [explain_group(config, group)[0].selected for group in ("tmp1", "t")] == [False, True]

    def test_a_users_filter_of_configs(self) -> None:
        source, name = 'region = "a"\ntopic = "t"', "tests.formats.policies.user_policies"
        settings = parse(ingress(source, more=f'config_property_filter = "{name}:NoTemporary"')).ingress
        assert settings is not None
        crossing = [one for one in ("tmp.x", "segment.bytes") if settings.config_filter.crosses(one)]
        assert crossing == ["segment.bytes"]
        problem = only(ingress(source, more=f'config_property_filter = "{name}:SaysMaybe"'))
        assert "ingress.config_property_filter: " in problem
        assert "lacks should_replicate_config_property()" in problem

    def test_show_reads_back(self) -> None:
        config = parse(SMALL + self.EGRESS)
        assert parse(to_toml(to_tables(config))).egress == config.egress


def test_a_principal_without_its_type_is_refused() -> None:
    """`protect` would not know it, and would deny it."""
    text = ingress('region = "a"\ntopic = "t"', more='own_principals = ["User:a", "replicator-eu"]')
    assert "write 'User:replicator-eu'" in only(text)
