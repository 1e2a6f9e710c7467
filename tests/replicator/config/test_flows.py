"""One file of several regions says of each what a file of that region says."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.errors import ConfigError
from infra.settings.field import Invalid
from replicator.config import Config, SettingsFile, from_mapping, load, parse
from replicator.config.across import between_files, notes_between
from replicator.config.explain_settings import explain_settings, named
from replicator.config.flows import expanded, tables_of
from replicator.config.flows_form import FLOW_KEYS, problems, regions_of
from replicator.config.show import to_toml
from replicator.services.egress import build_egress
from replicator.services.ingress import build_ingress
from tests.examples import property_examples
from tests.replicator.config.config_texts import SMALL, WHOLE

TWO = """
[cluster_defaults.kafka]
"security.protocol" = "SASL_SSL"
[cluster_defaults.ingress]
replication_factor = 3

[clusters.us-east.kafka]
"bootstrap.servers" = "kafka.us-east:9093"
"sasl.password" = "${US_EAST_PASSWORD}"
[clusters.us-east.s3]
bucket = "segments-us-east"
[clusters.us-east.sqs]
queue = "events-us-east"

[clusters.us-west.kafka]
"bootstrap.servers" = "kafka.us-west:9093"
"sasl.password" = "${US_WEST_PASSWORD}"
[clusters.us-west.s3]
bucket = "segments-us-west"
[clusters.us-west.sqs]
queue = "events-us-west"

[flow_defaults]
exclude = ["^tmp-.*"]

[flows."us-east->us-west"]
topics = ["orders", "^payments-.*"]

[flows."us-west->us-east"]
topics = ["^.*"]
exclude = ["secrets"]
on_lost = "skip"
"""
EAST = """
region = "us-east"
[kafka]
"security.protocol" = "SASL_SSL"
"bootstrap.servers" = "kafka.us-east:9093"
"sasl.password" = "${US_EAST_PASSWORD}"
[s3]
bucket = "segments-us-east"
[sqs]
queue = "events-us-east"
[egress]
exclude = ["^tmp-.*"]
[egress.topics.orders]
[egress.topics."^payments-.*"]
[ingress]
replication_factor = 3
[[ingress.sources]]
region = "us-west"
topic = "^.*"
replication_policy = "default"
exclude = ["secrets"]
on_lost = "skip"
"""
VARIABLES = {"US_EAST_PASSWORD": "1", "US_WEST_PASSWORD": "2"}


def region(text: str, name: str, environment: Mapping[str, str] = VARIABLES) -> Config:
    """Without the name of its file."""
    return replace(parse(text, region=name, environment=environment), source="")


def refused(text: str, name: str | None = "us-east", environment: Mapping[str, str] = VARIABLES) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse(text, region=name, environment=environment)
    return list(caught.value.problems)


def flows(*names: str, **settings: Any) -> dict[str, Any]:
    """A file with the clusters a, b and c, and these flows of all topics."""
    clusters = {
        one: {"kafka": {"bootstrap.servers": f"{one}:1"}, "s3": {"bucket": one}, "sqs": {"queue": one}} for one in "abc"
    }
    return {"clusters": clusters, "flows": {name: {"topics": ["^.*"], **settings} for name in names}}


class TestOneRegionOfIt:
    def test_is_what_its_own_file_would_be(self) -> None:
        assert region(TWO, "us-east") == replace(parse(EAST, environment=VARIABLES), source="")

    def test_needs_no_variable_of_the_others(self) -> None:
        assert region(TWO, "us-east", {"US_EAST_PASSWORD": "1"}) == region(TWO, "us-east")
        [one] = refused(TWO, "us-west", {"US_EAST_PASSWORD": "1"})
        assert one == ('clusters.us-west.kafka."sasl.password": the environment variable US_WEST_PASSWORD is not set')

    def test_is_named_in_messages_with_its_file(self) -> None:
        assert parse(TWO, source="all.toml", region="us-east", environment=VARIABLES).source == "all.toml#us-east"

    @pytest.mark.parametrize("text", [SMALL, WHOLE])
    def test_of_a_file_with_only_one(self, text: str) -> None:
        tables = tomllib.loads(text)
        name = tables.pop("region")
        assert region(to_toml({"clusters": {name: tables}}), name) == replace(parse(text), source="")

    def test_the_only_region_need_not_be_named(self) -> None:
        tables = tomllib.loads(SMALL)
        name = tables.pop("region")
        assert from_mapping({"clusters": {name: tables}}).region == name


SETTINGS: Mapping[str, st.SearchStrategy[Any]] = {
    "exclude": st.lists(st.sampled_from(["x", "^y.*"]), unique=True),
    "on_lost": st.sampled_from(["stop", "skip"]),
    "alias": st.sampled_from(["east", "west"]),
    "groups": st.lists(st.sampled_from(["billing", "^app-.*"]), unique=True),
    "groups_exclude": st.lists(st.sampled_from(["test"]), unique=True),
    "enabled": st.booleans(),
    "replication_policy": st.sampled_from(["default", "identity"]),
    "allow_merge": st.just(True),
}
FLOW = st.fixed_dictionaries(
    {"topics": st.lists(st.sampled_from(["orders", "^pay.*", "^.*"]), min_size=1, unique=True)}, optional={**SETTINGS}
)
NAMES = st.sampled_from(["a->b", "b->a", "a->c", "c->b", "b -> c"])


def by_hand(tree: Mapping[str, Any], name: str) -> dict[str, Any]:
    """What a person would write into the file of one region."""
    file: dict[str, Any] = {"region": name, **tree["clusters"][name]}
    mine = []
    for pair, table in tree["flows"].items():
        source, target = (one.strip() for one in pair.split("->"))
        settings = {**tree["flow_defaults"], **table}
        if settings.pop("enabled", True):
            mine.append((source, target, settings))
    leaving = [settings for source, _, settings in mine if source == name]
    if leaving:
        egress: dict[str, Any] = {"topics": {topic: {} for one in leaving for topic in one["topics"]}}
        for key in ("exclude", "groups_exclude"):
            egress[key] = [x for x in leaving[0].get(key, []) if all(x in one.get(key, []) for one in leaving)]
        egress["groups"] = list(dict.fromkeys(x for one in leaving for x in one.get("groups", [])))
        if not egress["groups"]:
            del egress["groups_exclude"]
        file["egress"] = egress
    sources = [
        {
            "replication_policy": "default",
            **{key: value for key, value in settings.items() if key not in ("topics", "groups", "groups_exclude")},
            "region": source,
            "topic": topic,
        }
        for source, target, settings in mine
        if target == name
        for topic in settings["topics"]
    ]
    return {**file, "ingress": {"sources": sources}} if sources else file


@property_examples()
@given(
    st.dictionaries(NAMES, FLOW, min_size=1),
    st.fixed_dictionaries({}, optional={**SETTINGS}),
    st.sampled_from("abc"),
)
def test_m24_flows_are_what_a_person_would_write(
    given_flows: dict[str, Any], defaults: dict[str, Any], name: str
) -> None:
    tree = {**flows(), "flows": given_flows, "flow_defaults": defaults}
    wanted: Config | list[str]
    try:
        wanted = replace(from_mapping(by_hand(tree, name)), source="")
    except ConfigError as error:
        wanted = [problem.partition(": ")[2] for problem in error.problems]
    try:
        found: Config | list[str] = replace(from_mapping(tree, region=name), source="")
    except ConfigError as error:
        found = [problem.partition(": ")[2] for problem in error.problems]
    assert found == wanted


@property_examples()
@given(st.dictionaries(NAMES, FLOW, min_size=1), st.fixed_dictionaries({}, optional={**SETTINGS}))
def test_every_place_that_is_named_is_in_the_file(given_flows: dict[str, Any], defaults: dict[str, Any]) -> None:
    tree = tomllib.loads(to_toml({**flows(), "flows": given_flows, "flow_defaults": defaults}))
    for name in regions_of(tree):
        found = expanded(tree, name)
        for path, place in found.written.items():
            assert not path or _has(tree, place), (path, place)
        for path in found.assumed:
            assert not _has(tree, found.where(path))


def _has(tree: Any, place: str) -> bool:
    for part in tomllib.loads(f"{place} = 1").items():
        key, below = part
        while True:
            if not isinstance(tree, dict) or key not in tree:
                return False
            tree = tree[key]
            if below == 1:
                return True
            [(key, below)] = below.items()
    return False


class TestDefaults:
    def test_of_clusters_are_merged_table_by_table(self) -> None:
        tree = {**flows("a->b"), "cluster_defaults": {"kafka": {"client.id": "x"}, "log": {"level": "debug"}}}
        tree["clusters"]["a"]["log"] = {"level": "error"}
        one, other = (from_mapping(tree, region=name) for name in "ab")
        assert one.cluster.base == {"client.id": "x", "bootstrap.servers": "a:1"}
        assert (one.log.level, other.log.level) == ("error", "debug")

    def test_of_properties_with_and_without_quotes(self) -> None:
        text = TWO.replace('"security.protocol" = "SASL_SSL"', 'security.protocol = "SASL_SSL"\nconsumer.a.b = 1')
        text = text.replace('"sasl.password" = "${US_EAST', 'consumer."a.b" = 2\n"sasl.password" = "${US_EAST')
        text = text.replace('"sasl.password" = "${US_WEST', '"security.protocol" = "SSL"\n"sasl.password" = "${US_WEST')
        east, west = (region(text, name).cluster for name in ("us-east", "us-west"))
        assert (east.base["security.protocol"], east.consumer) == ("SASL_SSL", {"a.b": "2"})
        assert (west.base["security.protocol"], west.consumer) == ("SSL", {"a.b": "1"})

    def test_of_a_section_that_a_cluster_has_no_use_for(self) -> None:
        tree = {**flows("a->b"), "cluster_defaults": {"ingress": {"group_id": "x"}, "egress": {"group_id": "y"}}}
        source, target, other = (from_mapping(tree, region=name) for name in "abc")
        assert (source.ingress, target.egress, other.ingress, other.egress) == (None, None, None, None)
        assert source.egress is not None
        assert source.egress.group_id == "y"

    def test_what_a_cluster_says_of_itself_is_not_passed_over(self) -> None:
        tree = flows()
        tree["clusters"]["a"]["ingress"] = {"group_id": "x"}
        with pytest.raises(ConfigError, match=r"clusters\.a\.ingress\.sources: missing"):
            from_mapping(tree, region="a")

    @pytest.mark.parametrize("flow", ["a->b", "b->a"])
    def test_an_ended_flow_takes_its_section_with_it(self, flow: str) -> None:
        tree = flows(flow, enabled=False)
        tree["clusters"]["a"] |= {"ingress": {"group_id": "x"}} if flow == "b->a" else {"egress": {"group_id": "x"}}
        config = from_mapping(tree, region="a")
        assert (config.egress, config.ingress) == (None, None)

    @pytest.mark.parametrize(
        ("where", "settings", "wanted"),
        [
            ("nowhere", {}, "b.t"),
            ("flow", {"replication_policy": "identity"}, "t"),
            ("flow_defaults", {"replication_policy": "identity"}, "t"),
            ("ingress", {"replication_policy": "identity"}, "t"),
            ("ingress", {"defaults": {"destination_topic": "{topic}.copy"}}, "t.copy"),
            ("flow_defaults", {"destination_topic": "{topic}.copy"}, "t.copy"),
        ],
    )
    def test_of_names(self, where: str, settings: dict[str, Any], wanted: str) -> None:
        tree = flows("b->a", **(settings if where == "flow" else {}))
        tree |= {"flow_defaults": settings} if where == "flow_defaults" else {}
        if where == "ingress":
            tree["clusters"]["a"]["ingress"] = settings
        config = from_mapping(tree, region="a")
        assert config.ingress is not None
        assert [one.destination("t") for one in config.ingress.sources] == [wanted]

    def test_a_policy_of_the_flow_beats_a_destination_of_the_defaults(self) -> None:
        tree = {**flows("b->a", replication_policy="identity"), "flow_defaults": {"destination_topic": "{topic}.copy"}}
        config = from_mapping(tree, region="a")
        assert config.ingress is not None
        assert config.ingress.sources[0].destination("t") == "t"


class TestOfTheSource:
    def test_what_only_one_flow_excludes_is_archived_for_the_others(self) -> None:
        tree = flows("a->b", "a->c", exclude=["x", "y"])
        tree["flows"]["a->c"]["exclude"] = ["y", "z"]
        config = from_mapping(tree, region="a")
        assert config.egress is not None
        assert [str(one) for one in config.egress.exclude] == ["y"]

    def test_what_is_only_archived_is_not_excluded_with_what_crosses(self) -> None:
        tree = flows("a->b", exclude=["orders.raw"])
        tree["clusters"]["a"]["egress"] = {"topics": {"orders.raw": {"start": "latest"}}}
        config = from_mapping(tree, region="a")
        assert config.egress is not None
        assert config.egress.exclude == ()
        assert [str(rule.pattern) for rule in config.egress.topics] == ["orders.raw", "^.*"]

    @pytest.mark.parametrize(
        ("own", "crossing", "excluded"),
        [("orders", "^.*", ["^secret.*"]), ("secrets", "^.*", []), ("other", "orders", []), ("^o.*", "^.*", [])],
    )
    def test_how_a_topic_is_archived_changes_nothing_of_what_is_excluded(
        self, own: str, crossing: str, excluded: list[str]
    ) -> None:
        tree = flows("a->b", topics=[crossing], exclude=["^secret.*"])
        tree["clusters"]["a"]["egress"] = {"topics": {own: {"max_segment_age": "10s"}}}
        config = from_mapping(tree, region="a")
        assert config.egress is not None
        assert [str(one) for one in config.egress.exclude] == excluded

    def test_settings_of_a_topic_are_kept(self) -> None:
        tree = flows("a->b", topics=["orders", "other"])
        tree["clusters"]["a"]["egress"] = {"topics": {"orders": {"max_segment_messages": 5}}}
        config = from_mapping(tree, region="a")
        assert config.egress is not None
        assert [(str(r.pattern), r.settings.max_segment_messages) for r in config.egress.topics] == [
            ("orders", 5),
            ("other", 1_000_000),
        ]

    @pytest.mark.parametrize(("other", "wanted"), [("m:F", "m:F"), ("m:G", None), (None, None)])
    def test_a_filter_that_all_flows_share(self, other: str | None, wanted: str | None) -> None:
        tree = flows("a->b", "a->c", topic_filter="m:F")
        tree["flows"]["a->c"]["topic_filter"] = other
        tables: Any = expanded(tree, "a").tables
        assert tables["egress"].get("topic_filter") == wanted


class TestRefused:
    def test_several_regions_and_none_is_named(self) -> None:
        [one] = refused(TWO, None)
        assert one == "has several regions: name one of them: us-east, us-west"

    def test_a_region_that_it_does_not_have(self) -> None:
        [one] = refused(TWO, "us-eats")
        assert one == "has no region 'us-eats' (did you mean 'us-east'?); its regions are: us-east, us-west"

    def test_another_file_of_one_region(self) -> None:
        assert parse(EAST, region="us-east", environment=VARIABLES).region == "us-east"
        variable = EAST.replace('"us-east"', '"${REGION}"')
        assert parse(variable, region="us-east", environment={**VARIABLES, "REGION": "us-east"}).region == "us-east"
        [one] = refused(EAST, "us-west")
        assert "region: is 'us-east': this is not the file of the region 'us-west'" in one

    @pytest.mark.parametrize(
        ("before", "after", "wanted"),
        [
            ("us-east->us-west", "us-eest->us-west", "flows.\"us-eest->us-west\": there is no cluster 'us-eest' (did"),
            ("us-east->us-west", "us-east=>us-west", 'flows."us-east=>us-west": is no flow: write "SOURCE->TARGET"'),
            ("us-east->us-west", "us-west  -> us-east", 'flows."us-west->us-east": is the same flow as'),
            ("[flow_defaults]", "[flow_default]", "flow_default: unknown key (did you mean 'flow_defaults'?)"),
            ("[flow_defaults]", "[kafka]\n[flow_defaults]", "kafka: belongs to a cluster: [clusters.NAME]"),
            ("[clusters.us-east.s3]", "[clusters.us-east]\nregion='x'\n[clusters.us-east.s3]", "us-east.region: is"),
            ("on_lost", "on_last", "us-east\".on_last: unknown key (did you mean 'on_lost'?)"),
            ("on_lost", "topic", "topic: unknown key (did you mean 'topics'?)"),
            ("on_lost", "region", "region: unknown key"),
            ("on_lost", "acls", "for all flows to a cluster: write it into [clusters.us-east.ingress]"),
            ("on_lost", "start", "about the archive: write it into [clusters.us-west.egress.topics]"),
            ("on_lost", "memory_budget", "for all flows from a cluster: write it into [clusters.us-west.egress]"),
            ('["^.*"]', '"^.*"', ".topics: must be a list of names and ^expressions, not a text"),
            ('["^.*"]', "[]", ".topics: is empty"),
            ('topics = ["^.*"]', "", ".topics: missing: the topics that cross"),
            ('on_lost = "skip"', "enabled = 1", ".enabled: must be true or false, not a whole number"),
            ("[clusters.us-east.s3]", "[clusters.us-east.s33]", "clusters.us-east.s33: unknown key (did you mean"),
            ('bucket = "segments-us-east"', "", "clusters.us-east.s3.bucket: missing"),
            ('["^.*"]', '["^("]', "flows.\"us-west->us-east\".topics: '^(' is not an expression"),
            ('["secrets"]', '["^("]', 'flows."us-west->us-east".exclude: item 0: '),
            ('["^tmp-.*"]', '["^("]', "flow_defaults.exclude: item 0: "),
            ('"skip"', '"skp"', 'flows."us-west->us-east".on_lost: must be "stop" or "skip"'),
            ("replication_factor = 3", "replication_factor = 0", "ingress.replication_factor: must be -1"),
        ],
    )
    def test_each_mistake_where_it_was_made(self, before: str, after: str, wanted: str) -> None:
        assert before in TWO
        found = refused(TWO.replace(before, after))
        assert any(wanted in one for one in found), found

    def test_all_at_once(self) -> None:
        wrong = TWO.replace("us-east->us-west", "us-eest->us-west").replace("on_lost", "on_last")
        assert len(refused(wrong + "\n[other]\n")) == 3

    @pytest.mark.parametrize("tree", [{"flows": {}}, {"clusters": 1}, {"clusters": {"a": 1}}, {"clusters": {"!": {}}}])
    def test_a_file_of_another_shape(self, tree: dict[str, Any]) -> None:
        assert list(problems(tree))
        with pytest.raises(Invalid):
            tables_of(tree, None)

    def test_tables_without_an_end(self) -> None:
        deep: dict[str, Any] = {}
        for _ in range(100_000):
            deep = {"x": deep}
        tree = {**flows("a->b"), "cluster_defaults": {"kafka": deep}}
        with pytest.raises(ConfigError, match="nested too deeply"):
            from_mapping(tree, region="a")

    @property_examples()
    @given(
        st.recursive(
            st.none() | st.booleans() | st.integers(0, 2) | st.sampled_from(["a", "a->b", "^("]),
            lambda inner: (
                st.lists(inner, max_size=2)
                | st.dictionaries(
                    st.sampled_from(["clusters", "flows", "a", "b", "a->b", "ingress", *FLOW_KEYS]), inner
                )
            ),
            max_leaves=12,
        ).filter(lambda tree: isinstance(tree, dict))
    )
    def test_whatever_it_is_it_is_refused_or_loaded(self, tree: Any) -> None:
        for name in (None, "a"):
            with suppress(ConfigError):
                from_mapping({"clusters": {"a": {}}, **tree}, region=name)


class TestFiles:
    @pytest.fixture
    def path(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        for name, value in VARIABLES.items():
            monkeypatch.setenv(name, value)
        path = tmp_path / "all.toml"
        path.write_text(TWO)
        return path

    def test_the_path_may_name_the_region(self, path: Path) -> None:
        assert load(f"{path}#us-east") == load(path, region="us-east") == load(f"{path}#us-east", region="us-east")

    def test_without_a_region_the_message_says_how_to_name_one(self, path: Path) -> None:
        with pytest.raises(ConfigError, match="name one of them, as FILE#REGION: us-east, us-west"):
            load(path)

    def test_a_file_may_have_the_sign_in_its_name(self, path: Path) -> None:
        other = path.rename(path.with_name("all#1.toml"))
        assert load(other, region="us-east").region == "us-east"

    def test_each_region_of_it(self, path: Path) -> None:
        assert [one.load().region for one in SettingsFile.of(path).by_region()] == ["us-east", "us-west"]
        assert [one.load().region for one in SettingsFile.of(f"{path}#us-west").by_region()] == ["us-west"]

    def test_its_regions_agree(self, path: Path) -> None:
        assert between_files([one.load() for one in SettingsFile.of(path).by_region()]) == []

    def test_of_a_ring_without_names_of_its_own_a_note_names_the_flow(self, path: Path) -> None:
        path.write_text(TWO.replace("[flow_defaults]", '[flow_defaults]\nreplication_policy = "identity"'))
        configs = [one.load() for one in SettingsFile.of(path).by_region()]
        places = {one.source: tables_of(tomllib.loads(path.read_text()), one.region).where for one in configs}
        assert between_files(configs, places) == []
        found = notes_between(configs, places)
        assert len(found) == 2  # of the two sources
        assert all(f"{path}#us-east" in one and "[egress]" not in one for one in found)
        assert 'with flows."us-east->us-west".exclude' in found[0]
        assert found[0].startswith(f'{path}#us-west: flows."us-east->us-west".topics: delivers ')

    @pytest.mark.parametrize(
        ("build", "section", "side", "ended", "advised"),
        [
            (build_egress, "egress", "from", "us-east->us-west", "us-east->REGION"),
            (build_ingress, "ingress", "to", "us-west->us-east", "REGION->us-east"),
        ],
    )
    def test_a_region_without_its_section_says_which_flows_have_ended(
        self, build: Callable[[Config], object], section: str, side: str, ended: str, advised: str
    ) -> None:
        text = TWO.replace("[flow_defaults]", "[flow_defaults]\nenabled = false")
        with pytest.raises(ConfigError) as caught:
            build(region(text, "us-east"))
        [problem] = caught.value.problems
        assert problem == f'{section}: missing: of the flows {side} us-east, enabled = false ends flows."{ended}"'
        with pytest.raises(ConfigError) as caught:
            build(region(TWO.partition("[flow_defaults]")[0], "us-east"))
        [problem] = caught.value.problems
        assert problem == (
            f'{section}: missing: the file has no flow {side} us-east; add flows."{advised}" with its topics'
        )

    def test_what_a_cluster_lacks_is_not_asked_for_in_the_defaults(self) -> None:
        text = TWO.replace('[clusters.us-west.s3]\nbucket = "segments-us-west"\n', "")
        text = text.replace("[flow_defaults]", '[cluster_defaults.s3]\nprefix = "data"\n[flow_defaults]')
        [problem] = refused(text, "us-west")
        assert problem.startswith("clusters.us-west.s3.bucket: missing")
        [problem] = refused(text.replace('prefix = "data"', 'bucket = ""'), "us-west")
        assert problem.startswith("cluster_defaults.s3.bucket: must")

    def test_all_regions_that_are_equally_near_are_suggested(self) -> None:
        assert "(did you mean 'us-east' or 'us-west'?)" in refused(TWO, "us-est")[0]
        assert "(did you mean 'us-east'?)" in refused(TWO, "us-eas")[0]

    def test_the_explanation_says_where_a_value_is(self) -> None:
        found = tables_of(tomllib.loads(TWO), "us-east")
        origins = {one.name: one.origin for one in explain_settings(region(TWO, "us-east"), found)}
        assert origins["egress.exclude"] == "from the file, by flow_defaults.exclude"
        assert origins["ingress.sources[0].exclude"] == 'from the file, by flows."us-west->us-east".exclude'
        assert origins["ingress.sources[0].replication_policy"] == "the default of a flow"
        assert origins["ingress.sources[0].on_recreate"] == "the default"
        assert origins["s3.bucket"] == "from the file, by clusters.us-east.s3.bucket"
        assert origins['kafka."security.protocol"'] == 'from the file, by cluster_defaults.kafka."security.protocol"'
        assert origins["region"] == "the name of the cluster"

    @pytest.mark.parametrize(
        ("name", "wanted"),
        [
            ("flows.us-west->us-east.exclude", ["ingress.sources[0].exclude"]),
            ('flows."us-west->us-east".topics', ["ingress.sources[0].topic"]),
            ("flow_defaults", ["egress.exclude"]),
            ("clusters.us-east.s3.bucket", ["s3.bucket"]),
            ("s3.bucket", ["s3.bucket"]),
        ],
    )
    def test_a_setting_may_be_named_as_the_file_has_it(self, name: str, wanted: list[str]) -> None:
        found = list(explain_settings(region(TWO, "us-east"), tables_of(tomllib.loads(TWO), "us-east")))
        assert [one.name for one in named(name, found)] == wanted
