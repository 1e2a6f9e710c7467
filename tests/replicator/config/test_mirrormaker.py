"""MirrorMaker 2's configurations become ours: every sample of its proposals, and what becomes of every property.

python -m tests.replicator.config.test_mirrormaker     writes the expected files again
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.topic_selection import TopicPattern
from replicator.config import parse
from replicator.config.java_properties import read_properties
from replicator.config.mirrormaker import ImportedFlow, imported_flows, patterns
from replicator.config.mirrormaker_keys import CLIENT_KEYS, KEYS, PREFIXES, SPELLINGS, Treatment, rule_of
from tests.examples import property_examples

SAMPLES = Path(__file__).parents[2] / "golden" / "mm2" / "import"
NAMES = sorted(path.name for path in SAMPLES.iterdir() if path.suffix in (".properties", ".json"))
ENVIRONMENT = {"S3_BUCKET": "bucket", "SQS_QUEUE": "queue"}
FLOW = """
clusters = a, b
a.bootstrap.servers = one:9092
b.bootstrap.servers = two:9092
a->b.enabled = true
"""


def flows(text: str) -> list[ImportedFlow]:
    return imported_flows(read_properties(text))


def only(*lines: str) -> ImportedFlow:
    """The flow a->b with these lines besides."""
    [one] = flows(FLOW + "\n".join(lines))
    return one


def treated(flow: ImportedFlow, key: str) -> Treatment:
    [one] = [one for one in flow.findings if one.key == key]
    assert one.reason
    return one.treatment


def written(name: str) -> str:
    """What becomes of a sample, for people: the files of each flow and the findings, or why there is none."""
    try:
        found = flows((SAMPLES / name).read_text(encoding="utf-8"))
    except ValueError as error:
        return f"{error}\n"
    parts = []
    for one in found:
        parts += [f"=== {one.name}", one.source_file, one.target_file]
        parts += [finding.text for finding in one.findings if finding.treatment is Treatment.MAPPED]
    return "\n".join(parts) + "\n"


@pytest.mark.parametrize("name", NAMES)
def test_a_sample(name: str) -> None:
    assert written(name) == (SAMPLES / f"{name}.expected").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", NAMES)
def test_what_becomes_of_a_sample_loads(name: str) -> None:
    if name == "kip382_worker.properties":
        return
    for one in flows((SAMPLES / name).read_text(encoding="utf-8")):
        environment = ENVIRONMENT | {f"{x}_BOOTSTRAP_SERVERS": "x:9092" for x in ("US_WEST", "US_EAST", "TARGET")}
        source = parse(one.source_file, environment=environment)
        target = parse(one.target_file, environment=environment)
        assert (source.region, target.region) == (one.source, one.target)
        assert source.egress is not None
        assert target.ingress is not None
        assert [str(rule.pattern) for rule in source.egress.topics] == [str(s.topic) for s in target.ingress.sources]


@pytest.mark.parametrize("name", NAMES)
def test_every_key_of_a_sample_is_accounted_for(name: str) -> None:
    properties = read_properties((SAMPLES / name).read_text(encoding="utf-8"))
    if name == "kip382_worker.properties":
        return
    assert {one.key for flow in imported_flows(properties) for one in flow.findings} == properties.keys()


@pytest.mark.parametrize("key", [*KEYS, *SPELLINGS])
def test_every_property_has_its_rule(key: str) -> None:
    rule = rule_of(key)
    assert rule is not None
    assert rule.reason
    if key not in ("clusters", "source.cluster.alias", "target.cluster.alias", "enabled", "enable"):
        treated(only(f"a->b.{key} = 1"), f"a->b.{key}")


@pytest.mark.parametrize("prefix", PREFIXES)
def test_properties_below_a_prefix(prefix: str) -> None:
    flow = only(f"{prefix}x = y")
    assert treated(flow, f"{prefix}x") is PREFIXES[prefix].treatment


@pytest.mark.parametrize("key", CLIENT_KEYS)
@pytest.mark.parametrize("head", ["a->b.source.consumer.", "a->b.source.cluster.consumer.", "a.consumer."])
def test_every_property_of_a_client(head: str, key: str) -> None:
    if key == "bootstrap.servers":
        return
    wanted = {Treatment.REFUSED} if key in ("auto.offset.reset", "sasl.jaas.config") else {CLIENT_KEYS[key].treatment}
    flow = only(f"{head}{key} = what")
    assert treated(flow, f"{head}{key}") in wanted


def test_the_narrower_key_wins() -> None:
    flow = only("topics = x", "b.topics = y", "a->b.topics = z")
    assert "[egress.topics.z]" in flow.source_file
    assert [treated(flow, key) for key in ("topics", "b.topics", "a->b.topics")] == ["ignored", "ignored", "mapped"]


def test_only_enabled_flows_are_imported() -> None:
    assert [one.name for one in flows(FLOW)] == ["a->b"]
    assert [one.name for one in flows(FLOW.replace("a->b.enabled = true", ""))] == ["a->b", "b->a"]
    assert [one.name for one in flows(FLOW + "enabled = true\na->b.enabled = false")] == ["b->a"]


@pytest.mark.parametrize(
    "expression",
    [r"\p{Alpha}+", r"\Qa.b\E", "[a-z&&[^b]]+", "(?<name>x)", "(?i)orders", r"a\h", "a(", "*"],
)
def test_what_only_java_understands_is_refused_by_name(expression: str) -> None:
    flow = only("topics = " + expression.replace("\\", "\\\\"))
    [refused] = flow.refused
    assert refused.key == "topics"
    assert expression in refused.text


def test_secrets_become_variables() -> None:
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    flow = only(
        f'a.sasl.jaas.config = {module} required username="me" password="hidden";',
        "b.consumer.sasl.password = hidden",
        "b.ssl.truststore.password = hidden",
    )
    assert '"sasl.username" = "me"' in flow.source_file
    assert '"sasl.password" = "${A_SASL_PASSWORD}"' in flow.source_file
    assert '"sasl.password" = "${B_SASL_PASSWORD}"' in flow.target_file
    assert "hidden" not in "".join([flow.source_file, flow.target_file, *(one.text for one in flow.findings)])


@pytest.mark.parametrize(
    ("lines", "is_on", "interval"),
    [
        ((), True, "5s"),
        (("emit.heartbeats.enabled = true", "emit.heartbeats.interval.seconds = 1"), True, "1s"),
        (("emit.heartbeats.enabled = false", "emit.heartbeats.interval.seconds = 1"), False, "1s"),
        (("emit.heartbeats.interval.seconds = 0", "emit.heartbeats.enabled = true"), False, "5s"),
        (("emit.heartbeats.enabled = true", "a->b.emit.heartbeats.enabled = false"), False, "5s"),
    ],
)
def test_heartbeats(lines: tuple[str, ...], is_on: bool, interval: str) -> None:
    settings = parse(only(*lines).target_file, environment=ENVIRONMENT).ingress
    assert settings is not None
    assert [source.heartbeats for source in settings.sources] == [is_on]
    assert settings.heartbeat_interval == timedelta(seconds=int(interval[:-1]))


def test_a_value_of_several_lines_stays_a_comment() -> None:
    flow = only("tasks.max = 1\\nregion = 'x'")
    assert parse(flow.source_file, environment=ENVIRONMENT).region == "a"


def test_clusters_and_a_connector() -> None:
    """One of the two would be dropped without a word."""
    with pytest.raises(ValueError, match="has both clusters"):
        flows(FLOW + "source.cluster.alias = a\n")


def test_neither_clusters_nor_a_connector() -> None:
    with pytest.raises(ValueError, match="names no flow"):
        flows("topics = .*")


class TestProperties:
    @pytest.mark.parametrize(
        ("text", "wanted"),
        [
            ("a=b", {"a": "b"}),
            ("  a : b c ", {"a": "b c"}),
            ("a b", {"a": "b"}),
            ("# c\n! d\n\na=1", {"a": "1"}),
            ("a=b\\\n   c", {"a": "bc"}),
            ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
            ("a\\:b=c", {"a:b": "c"}),
            ("a=\\u00e9\\t.", {"a": "é\t."}),
            ("a=1\na=2", {"a": "2"}),
            ("a", {"a": ""}),
            ('{"name": "n", "config": {"a": 1, "b": true, "c": "x"}}', {"a": "1", "b": "true", "c": "x"}),
        ],
    )
    def test_are_read_as_java_reads_them(self, text: str, wanted: dict[str, str]) -> None:
        assert read_properties(text) == wanted

    @pytest.mark.parametrize("text", ["{", '{"config": 1}', '{"a": {"b": 1}}'])
    def test_json_that_is_no_connector(self, text: str) -> None:
        with pytest.raises(ValueError, match="is no"):
            read_properties(text)

    @property_examples()
    @given(st.dictionaries(st.text("ab.=: \\#", min_size=1), st.text("xy=:#\\")))
    def test_what_is_escaped_is_read_back(self, wanted: dict[str, str]) -> None:
        def escaped(text: str) -> str:
            return "".join(f"\\{sign}" if sign in "=: #\\" else sign for sign in text)

        lines = [f"{escaped(key)}={escaped(value)}" for key, value in wanted.items()]
        assert read_properties("\n".join(lines)) == wanted


@property_examples()
@given(st.lists(st.from_regex(r"[a-z0-9._-]{1,9}", fullmatch=True).filter(lambda one: one.strip(".")), min_size=1))
def test_names_stay_names(names: list[str]) -> None:
    assert [TopicPattern(one).text for one in patterns(", ".join(names))] == names


if __name__ == "__main__":
    for each in NAMES:
        (SAMPLES / f"{each}.expected").write_text(written(each), encoding="utf-8")
