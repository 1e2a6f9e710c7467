"""MirrorMaker 2's configurations become ours: every sample of its proposals, and what becomes of every property.

python -m tests.replicator.config.test_mirrormaker     writes the expected files again
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.topic_selection import TopicPattern
from replicator.config import Config, parse
from replicator.config.across import between_files
from replicator.config.java_properties import read_properties
from replicator.config.mirrormaker import imported_flows
from replicator.config.mirrormaker_clients import login_of
from replicator.config.mirrormaker_file import ImportedFile, ImportedFlow, imported_file
from replicator.config.mirrormaker_keys import CLIENT_KEYS, KEYS, PREFIXES, SPELLINGS, Treatment, rule_of
from replicator.config.mirrormaker_patterns import patterns
from tests.examples import property_examples

SAMPLES = Path(__file__).parents[2] / "golden" / "mm2" / "import"
NAMES = sorted(path.name for path in SAMPLES.iterdir() if path.suffix in (".properties", ".json"))
WITHOUT_FLOWS = ("kip382_worker.properties", "kip382_legacy_verbatim.properties")
VARIABLE = re.compile(r"\$\{([A-Z0-9_]+)\}")
FLOW = """
clusters = a, b
a.bootstrap.servers = one:9092
b.bootstrap.servers = two:9092
a->b.enabled = true
"""


def imported(text: str) -> ImportedFile:
    return imported_file(imported_flows(read_properties(text)))


def loaded(text: str) -> list[Config]:
    """Each region of an imported file, with its variables set to their names."""
    names = [name for line in text.splitlines() if not line.startswith("#") for name in VARIABLE.findall(line)]
    regions = list(tomllib.loads(text)["clusters"])
    return [parse(text, region=region, environment={name: name for name in names}) for region in regions]


def only(*lines: str) -> ImportedFlow:
    """The flow a->b with these lines besides."""
    [one] = imported(FLOW + "\n".join(lines)).flows
    return one


def text_of(*lines: str) -> str:
    return imported(FLOW + "\n".join(lines)).text


def treated(flow: ImportedFlow, key: str) -> Treatment:
    [one] = [one for one in flow.findings if one.key == key]
    assert one.reason
    return one.treatment


def written(name: str) -> str:
    """What becomes of a sample, for people: the file and what was mapped of each flow, or why there is none."""
    try:
        found = imported((SAMPLES / name).read_text(encoding="utf-8"))
    except ValueError as error:
        return f"{error}\n"
    parts = [found.text]
    for one in found.flows:
        parts += [f"=== {one.name}"]
        parts += [finding.text for finding in one.findings if finding.treatment is Treatment.MAPPED]
    return "\n".join(parts) + "\n"


@pytest.mark.parametrize("name", NAMES)
def test_a_sample(name: str) -> None:
    assert written(name) == (SAMPLES / f"{name}.expected").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", [one for one in NAMES if one not in WITHOUT_FLOWS])
def test_what_becomes_of_a_sample_loads(name: str) -> None:
    file = imported((SAMPLES / name).read_text(encoding="utf-8"))
    configs = loaded(file.text)
    if not name.endswith(("connector.properties", "legacy.properties")):  # one cluster twice; a ring that is a loop
        assert between_files(configs) == []
    regions = {config.region: config for config in configs}
    for one in file.flows:
        egress, ingress = regions[one.source].egress, regions[one.target].ingress
        assert egress is not None
        assert ingress is not None
        delivered = {str(source.topic) for source in ingress.sources if source.region == one.source}
        assert delivered == set(one.settings["topics"])  # type: ignore[call-overload]
        assert delivered <= {str(rule.pattern) for rule in egress.topics}


@pytest.mark.parametrize("name", [one for one in NAMES if one not in WITHOUT_FLOWS])
def test_a_file_for_each_region_is_the_same(name: str) -> None:
    file = imported((SAMPLES / name).read_text(encoding="utf-8"))
    for config, (region, text) in zip(loaded(file.text), file.by_region().items(), strict=True):
        environment = {variable: variable for variable in VARIABLE.findall(text)}
        assert replace(config, source="") == replace(parse(text, environment=environment), source=""), region


@pytest.mark.parametrize("name", NAMES)
def test_every_key_of_a_sample_is_accounted_for(name: str) -> None:
    properties = read_properties((SAMPLES / name).read_text(encoding="utf-8"))
    if name in WITHOUT_FLOWS:
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
    assert flow.settings["topics"] == ["z"]
    assert [treated(flow, key) for key in ("topics", "b.topics", "a->b.topics")] == ["ignored", "ignored", "mapped"]


@pytest.mark.parametrize("scope", ["", "b.", "a->b."])
@pytest.mark.parametrize("is_last", [True, False])
def test_todays_spelling_beats_an_old_one(scope: str, *, is_last: bool) -> None:
    """As in MirrorMaker 2. What the other excludes would cross."""
    lines = ["topics.exclude = secret.*", f"{scope}topics.blacklist = noise.*"]
    flow = only(*(reversed(lines) if is_last else lines))
    assert flow.settings["exclude"] == ["^secret.*"]
    assert treated(flow, f"{scope}topics.blacklist") is Treatment.IGNORED
    assert only(f"{scope}topics.blacklist = noise.*").settings["exclude"] == ["^noise.*"]


def test_a_flow_that_is_off_in_todays_spelling_is_off() -> None:
    with pytest.raises(ValueError, match="enables no flow"):
        imported("clusters = a, b\na->b.enabled = false\na->b.enable = true\n")


def test_only_enabled_flows_are_imported() -> None:
    def names(text: str) -> list[str]:
        return [one.name for one in imported(text).flows]

    assert names(FLOW) == ["a->b"]
    assert names(FLOW.replace("a->b.enabled = true", "")) == ["a->b", "b->a"]
    assert names(FLOW + "enabled = true\na->b.enabled = false") == ["b->a"]


@pytest.mark.parametrize(
    "expression",
    [
        *(r"\p{Alpha}+", r"\Qa.b\E", "[a-z&&[^b]]+", "(?<name>x)", "(?i)orders", r"a\h", "a(", "*"),
        *("[a-d[m-p]]", "[^[a]]x", r"a\b{g}", r"\x{41}", r"\0101", r"(a)\k<n>", r"a\v"),
    ],
)
def test_what_only_java_understands_is_refused_by_name(expression: str) -> None:
    flow = only("topics = " + expression.replace("\\", "\\\\"))
    [refused] = flow.refused
    assert refused.key == "topics"
    assert expression in refused.text


@pytest.mark.parametrize("expression", [r"[\[a]x", "[a-z]+[0-9]", "a{2}", "(?>a|b)c", "a++b", "(?:a|b)"])
def test_what_both_understand_alike(expression: str) -> None:
    assert patterns(expression) == [f"^{expression}"]


@pytest.mark.parametrize("line", ["topics = (?i)a", "topics =", "topics.exclude = (?i)a", "topic.filter.class = x.My"])
def test_a_flow_whose_topics_are_not_understood_is_off(line: str) -> None:
    """Otherwise it would copy more than is meant, by the default: everything."""
    source, target = loaded(text_of(line))
    assert (source.egress, target.ingress) == (None, None)
    [refused] = only(line).refused
    assert refused.reason.endswith("until the flow says which topics cross, it is off")


@pytest.mark.parametrize("name", ["MirrorCheckpointConnector", "MirrorHeartbeatConnector"])
def test_a_connector_that_copies_no_records_is_no_flow_of_all_topics(name: str) -> None:
    """Its file has no topics; by the default everything would cross."""
    text = f"""
        connector.class = org.apache.kafka.connect.mirror.{name}
        source.cluster.alias = a
        target.cluster.alias = b
    """
    [one] = imported(text).flows
    assert one.settings["enabled"] is False
    [refused] = one.refused
    assert refused.key == "connector.class"
    assert f"{name} copies no record" in refused.reason
    assert "MirrorSourceConnector" in refused.reason
    [copying] = imported(text.replace(name, "MirrorSourceConnector")).flows
    assert "enabled" not in copying.settings


def test_no_group_crosses_without_checkpoints_in_whatever_order() -> None:
    lines = ("groups = x", "emit.checkpoints.enabled = false")
    assert "groups" not in only(*lines).settings
    assert "groups" not in only(*reversed(lines)).settings
    assert only("emit.checkpoints.enabled = false", "a->b.emit.checkpoints.enabled = true").settings["groups"]


@pytest.mark.parametrize(
    ("lines", "crosses", "interval"),
    [
        (("emit.checkpoints.interval.seconds = 10",), True, 10),
        (("emit.checkpoints.interval.seconds = 0", "emit.checkpoints.enabled = true"), False, 60),
        (("emit.checkpoints.enabled = true", "emit.checkpoints.interval.seconds = -1"), False, 60),
    ],
)
def test_the_interval_of_checkpoints_is_that_of_groups(lines: tuple[str, ...], crosses: bool, interval: int) -> None:
    source, _ = loaded(text_of("groups = x", *lines))
    assert source.egress is not None
    assert [one.text for one in source.egress.groups] == (["x"] if crosses else [])
    assert source.egress.group_interval == timedelta(seconds=interval)


def test_an_interval_of_checkpoints_that_is_no_number_is_refused() -> None:
    [refused] = only("emit.checkpoints.interval.seconds = often").refused
    assert refused.key == "emit.checkpoints.interval.seconds"


class TestGroupsOfTheTarget:
    SYNC = "sync.group.offsets.enabled = true"

    def settings(self, *lines: str) -> tuple[bool, float]:
        """Of the target: whether it syncs, and how often."""
        _, target = loaded(text_of(*lines))
        return target.groups.sync, target.groups.interval.total_seconds()

    @pytest.mark.parametrize(
        ("lines", "wanted"),
        [
            ((), (False, 60)),
            ((SYNC,), (True, 60)),
            (("sync.group.offsets.enabled = false",), (False, 60)),
            (("emit.checkpoints.interval.seconds = 10",), (False, 10)),
            (("sync.group.offsets.interval.seconds = 5",), (False, 60)),
            ((SYNC, "sync.group.offsets.interval.seconds = 5"), (True, 5)),
            ((SYNC, "sync.group.offsets.interval.seconds = 90", "emit.checkpoints.interval.seconds = 30"), (True, 30)),
            ((SYNC, "sync.group.offsets.interval.seconds = 20", "emit.checkpoints.interval.seconds = 30"), (True, 20)),
            ((SYNC, "sync.group.offsets.interval.seconds = -1"), (False, 60)),
            ((SYNC, "emit.checkpoints.enabled = false"), (False, 60)),
        ],
    )
    def test_as_mirrormaker_2_would_do_it(self, lines: tuple[str, ...], wanted: tuple[bool, float]) -> None:
        assert only(*lines).refused == []
        assert self.settings(*lines) == wanted
        assert self.settings(*reversed(lines)) == wanted

    def test_an_interval_that_is_no_number_is_refused(self) -> None:
        [refused] = only("sync.group.offsets.interval.seconds = often").refused
        assert refused.key == "sync.group.offsets.interval.seconds"

    def test_of_two_flows_that_contradict(self) -> None:
        lines = "clusters = a, b, c\na->b.enabled = true\nc->b.enabled = true\n"
        file = imported(lines + "a->b.sync.group.offsets.enabled = true")
        [refused] = [one for flow in file.flows for one in flow.refused]
        assert refused.reason == "is one setting, [clusters.b.groups] sync, but True in a->b, False in c->b"
        agreed = imported(lines + "a->b.sync.group.offsets.enabled = true\nc->b.emit.checkpoints.enabled = false")
        assert not [one for flow in agreed.flows for one in flow.refused], "of c no group crosses"


class TestKeysOfNoFlow:
    def test_of_a_flow_that_is_not_enabled(self) -> None:
        [one] = [one for one in only("b->a.topics = x").findings if one.key == "b->a.topics"]
        assert (one.treatment, one.reason) == (Treatment.IGNORED, "is about no flow that is enabled")

    @pytest.mark.parametrize("flow", ["a->c", "c->b", "a ->b x"])
    def test_of_a_cluster_that_is_not_there(self, flow: str) -> None:
        [refused] = imported_file(imported_flows({**read_properties(FLOW), f"{flow}.topics": "x"})).flows[0].refused
        assert refused.reason.startswith("there is no cluster ")
        assert "; the file has: a, b" in refused.reason

    def test_each_once_in_the_file(self) -> None:
        text = text_of("b->a.enabled = true", "a->z.topics = x")
        [line] = [line for line in text.splitlines() if "a->z.topics" in line]
        assert line.startswith("# refused: ")  # no flow has it rather than another

    def test_without_clusters_the_keys_of_flows_name_them(self) -> None:
        flows = imported_flows(
            {"a->b.topics": "x", "c->b.topics": "y", "c->b.enabled": "false", "a->b.enabled": "true"}
        )
        assert [(one.name, one.settings["topics"]) for one in flows] == [("a->b", ["x"])]


class TestWhatIsMistyped:
    """A key that is dropped would let every topic cross, or under other names."""

    HEAD = """
clusters = us-east, us-west, eu
us-east->us-west.enabled = true
us-east->eu.enabled = true
"""

    def off(self, line: str) -> list[str]:
        return [one.name for one in imported(self.HEAD + line).flows if one.settings.get("enabled") is False]

    @pytest.mark.parametrize(
        "name",
        [
            *("topcs", "topic", "Topics", "topics.excludes", "topics.blaklist", "topics.regex", "topic_exclude"),
            *("topic.filter.clas", "whitelist", "replication.policy.clas", "replication.policy.seperator"),
        ],
    )
    def test_a_key_that_selects_or_names(self, name: str) -> None:
        assert self.off(f"us-east->us-west.{name} = orders.*") == ["us-east->us-west"]
        assert self.off(f"eu.{name} = orders.*") == ["us-east->eu"]
        assert self.off(f"{name} = orders.*") == ["us-east->us-west", "us-east->eu"]
        assert self.off(f"us-east.{name} = orders.*") == []  # of flows to it, and there are none

    def test_what_was_meant(self) -> None:
        [refused] = imported(self.HEAD + "us-east->us-west.topcs = orders.*").flows[0].refused
        assert "(did you mean 'topics'?)" in refused.text
        [refused] = imported(self.HEAD + "us-est->us-west.topics = orders.*").flows[0].refused
        assert "no cluster 'us-est' (did you mean 'us-east'?)" in refused.text
        assert "us-east->us-west: until the flow says which topics cross" in refused.text

    @pytest.mark.parametrize(
        "name", ["what", "emit.checkpoint.enabled", "consumer.fetch.min.byte", "task.max", "group"]
    )
    def test_a_key_that_neither_selects_nor_names(self, name: str) -> None:
        assert self.off(f"us-east->us-west.{name} = 1") == []

    @pytest.mark.parametrize(
        ("line", "off"),
        [
            ("us-est->us-west.topics = x", ["us-east->us-west"]),
            ("us-east->us-wst.topics.blacklist = x", ["us-east->us-west"]),
            ("us-est->eu.topcs = x", ["us-east->eu"]),
            ("us-est->us-west.replication.policy.class = IdentityReplicationPolicy", ["us-east->us-west"]),
            ("us-est->us-west.tasks.max = 2", []),
            ("us-est->us-west.topics = x\nus-east->us-west.topics = x", []),
            ("elsewhere->eu.topics = x", ["us-east->eu"]),
            ("eu->elsewhere.topics = x", []),
            ("us-est->us-west.topic.creation.enable = true", []),
            ("transforms.x.topics = y", []),
            ("us-est.topics = x", ["us-east->us-west", "us-east->eu"]),
            ("us-east-us-west.topics = x", ["us-east->us-west", "us-east->eu"]),
            ("us-east -> us-west.topics = x", ["us-east->us-west", "us-east->eu"]),
        ],
    )
    def test_a_cluster(self, line: str, off: list[str]) -> None:
        assert self.off(line) == off

    def test_each_flow_is_enabled_by_itself(self) -> None:
        flows = imported(self.HEAD + "topcs = x").tables["flows"]
        assert isinstance(flows, dict)
        assert [flow["enabled"] for flow in flows.values()] == [False, False]

    @pytest.mark.parametrize("policy", ["my.Policy", ""])
    def test_a_policy_that_is_not_known_names_nothing(self, policy: str) -> None:
        [refused] = only(f"replication.policy.class = {policy}").refused
        assert refused.reason.endswith("until the flow says how its topics are named, it is off")
        source, target = loaded(text_of(f"replication.policy.class = {policy}"))
        assert (source.egress, target.ingress) == (None, None)


class TestBooleans:
    @pytest.mark.parametrize(
        "name",
        [
            *("sync.topic.acls.enabled", "sync.topic.configs.enabled", "emit.checkpoints.enabled"),
            *("emit.heartbeats.enabled", "refresh.topics.enabled", "sync.group.offsets.enabled"),
        ],
    )
    def test_are_true_or_false(self, name: str) -> None:
        [refused] = only(f"{name} = yes").refused
        assert refused.text == f"refused: {name} = yes: must be true or false, not 'yes'"
        assert only(f"{name} = yes").settings == only().settings
        assert only(f"{name} =  FALSE ").refused == []

    def test_enabled(self) -> None:
        with pytest.raises(ValueError, match=r"b->a\.enabled = yes: must be true or false, not 'yes'"):
            imported(FLOW + "b->a.enabled = yes")

    def test_enabled_mistyped(self) -> None:
        """Without any `enabled`, every pair would be a flow."""
        with pytest.raises(ValueError, match=r"a->b\.enabld = true: .*did you mean 'enabled'"):
            imported(FLOW.replace("enabled", "enabld"))

    @pytest.mark.parametrize("line", ["a->b.enabled = false", "a->c.enabled = true"])
    def test_no_flow_at_all(self, line: str) -> None:
        with pytest.raises(
            ValueError, match=r"enables no flow: write A->B\.enabled = true, with two of a, b"
        ) as caught:
            imported("clusters = a, b\n" + line)
        assert ("there is no cluster 'c'" in str(caught.value)) == ("c" in line.partition(".")[0])


SPLIT = "replication.policy.internal.topic.separator.enabled"


@pytest.mark.parametrize(
    ("lines", "treatment"),
    [
        ((f"{SPLIT} = false",), Treatment.IGNORED),
        ((f"{SPLIT} = true", "replication.policy.separator = _"), Treatment.IGNORED),
        ((f"{SPLIT} = false", "replication.policy.separator = _"), Treatment.REFUSED),
        (("replication.policy.separator = _", f"{SPLIT} = False"), Treatment.REFUSED),
        ((f"{SPLIT} = nope",), Treatment.REFUSED),
    ],
)
def test_internal_topics_have_the_separator_of_the_others(lines: tuple[str, ...], treatment: Treatment) -> None:
    """Clients find checkpoints and offset syncs by their names."""
    assert treated(only(*lines), SPLIT) is treatment


def test_an_alias_may_be_called_cluster() -> None:
    file = imported("""
clusters = cluster, b
cluster.bootstrap.servers = one:9092
cluster->b.enabled = true
""")
    assert loaded(file.text)[0].cluster.properties("admin")["bootstrap.servers"] == "one:9092"


@pytest.mark.parametrize("value", ["${topic}", '"${topic}"'])
def test_the_format_of_names_with_and_without_quotes(value: str) -> None:
    assert only(f"remote.topic.format = {value}").settings["replication_policy"] == "identity"


@pytest.mark.parametrize(
    ("options", "login"),
    [
        ('username="me" password="it";', ("me", "it")),
        ("password='i t' username=me;", ("me", "i t")),
        (r'username="me" password="a\"b\\";', ("me", 'a"b\\')),
        ('username="me" password="";', ("me", "")),
        ('username="me" password="it" tokenauth="true";', None),
        ('username="me";', None),
        ("", None),
    ],
)
def test_a_login_as_jaas_writes_it(options: str, login: tuple[str, str] | None) -> None:
    assert login_of(f"org.apache.kafka.common.security.scram.ScramLoginModule required {options}") == login


def test_secrets_become_variables() -> None:
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    file = imported(
        FLOW
        + f'a.sasl.jaas.config = {module} required username="me" password="hidden";\n'
        + "b.consumer.sasl.password = hidden\nb.ssl.truststore.password = hidden"
    )
    source, target = file.by_region().values()
    assert '"sasl.username" = "me"' in source
    assert '"sasl.password" = "${A_SASL_PASSWORD}"' in source
    assert '"sasl.password" = "${B_SASL_PASSWORD}"' in target
    assert "hidden" not in "".join([file.text, source, target, *(one.text for one in file.flows[0].findings)])


@pytest.mark.parametrize(
    "line",
    [
        "a.ssl.keystore.key = -----BEGIN PRIVATE KEY-----hidden",
        "b.producer.ssl.keystore.key = -----BEGIN PRIVATE KEY-----hidden",
        "value.converter.basic.auth.user.info = me:hidden",
        "value.converter.schema.registry.url = https://me:hidden@registry:8081",
        "nothing.of.that.name = https://me:hidden@registry:8081",
    ],
)
def test_no_comment_has_a_secret(line: str) -> None:
    """What is ignored or refused is written into the file, and to standard error, with its value."""
    file = imported(FLOW + line)
    assert line.partition(" ")[0] in file.text
    assert "hidden" not in "".join([file.text, *(one.text for flow in file.flows for one in flow.findings)])


class TestStores:
    TYPE = ("b.ssl.truststore.location = /x/ca.pem", "b.ssl.truststore.type = PEM")

    def test_of_certificates_as_pem(self) -> None:
        for lines in (self.TYPE, self.TYPE[::-1]):
            assert only(*lines).refused == []
            _, target = loaded(text_of(*lines))
            assert target.cluster.properties("admin")["ssl.ca.location"] == "/x/ca.pem"

    def test_of_keys_as_pem(self) -> None:
        lines = ("ssl.keystore.type = pem", "ssl.keystore.location = /x/me.pem", "ssl.key.password = hidden")
        assert only(*lines).refused == []
        for config in loaded(text_of(*lines)):
            found = config.cluster.properties("admin")
            assert (found["ssl.certificate.location"], found["ssl.key.location"]) == ("/x/me.pem", "/x/me.pem")

    def test_of_one_client(self) -> None:
        head = "a.consumer.ssl.truststore"
        source, target = loaded(text_of(f"{head}.type = PEM", f"{head}.location = /x/ca.pem"))
        assert source.cluster.properties("consumer")["ssl.ca.location"] == "/x/ca.pem"
        assert "ssl.ca.location" not in {**source.cluster.properties("admin"), **target.cluster.properties("admin")}

    @pytest.mark.parametrize("lines", [(), ("b.ssl.truststore.type = JKS",), ("a.ssl.truststore.type = PEM",)])
    def test_of_java(self, lines: tuple[str, ...]) -> None:
        refused = {one.key: one.reason for one in only(self.TYPE[0], *lines).refused}
        assert "convert the store" in refused["b.ssl.truststore.location"]
        assert refused["b.ssl.truststore.location"].endswith("in [clusters.b.kafka]")


def test_each_region_has_a_bucket_and_a_queue_of_its_own() -> None:
    one, other = loaded(text_of("b->a.enabled = true"))
    assert (one.s3.bucket, other.s3.bucket) == ("A_S3_BUCKET", "B_S3_BUCKET")
    assert [c.sqs and c.sqs.queue for c in (one, other)] == ["A_SQS_QUEUE", "B_SQS_QUEUE"]


class TestBuckets:
    """Nothing but objects crosses, and MirrorMaker 2's file says nothing of them: the file says it at each bucket."""

    def below(self, text: str, header: str) -> list[str]:
        """The comments of a table, which come first in it."""
        _, _, rest = text.partition(f"\n[{header}]\n")
        lines = rest.splitlines()
        return lines[: next(n for n, line in enumerate(lines) if not line.startswith("#"))]

    def test_of_a_source_and_of_a_target(self) -> None:
        file = imported(FLOW)
        leaves = [
            "# what is stored below data/a/ has to reach the bucket of b: by S3 replication, or by [clusters.a.sync];",
            "# or both regions have one bucket",
        ]
        assert self.below(file.text, "clusters.a.s3") == leaves
        arrives = ["# has to get what the bucket of a has below data/a/"]
        assert self.below(file.text, "clusters.b.s3") == arrives
        of_a, of_b = file.by_region().values()
        assert self.below(of_a, "s3") == [line.replace("clusters.a.", "") for line in leaves]
        assert self.below(of_b, "s3") == arrives

    def test_of_several(self) -> None:
        file = imported("clusters = a, b, c\na->b.enabled = true\na->c.enabled = true\nc->a.enabled = true")
        first, _, last = self.below(file.text, "clusters.a.s3")
        assert "data/a/ has to reach the buckets of b, c:" in first
        assert last == "# has to get what the bucket of c has below data/c/"
        [*_, last] = self.below(
            imported("clusters = a, b, c\na->b.enabled = true\nc->b.enabled = true").text, "clusters.b.s3"
        )
        assert last == "# has to get what the buckets of a, c have below data/a/, data/c/"

    def test_of_an_alias_with_a_dot(self) -> None:
        file = imported("clusters = a.x, b\na.x->b.enabled = true")
        assert 'by [clusters."a.x".sync]' in self.below(file.text, 'clusters."a.x".s3')[0]


class TestFlowsOfOneCluster:
    """MirrorMaker 2 has a setting for each flow, where an egress or an ingress here has one for all of them."""

    HEAD = """
clusters = a, b, c
a->b.enabled = true
c->b.enabled = true
a->c.enabled = true
"""

    def treatments(self, *lines: str) -> dict[str, Treatment]:
        file = imported(self.HEAD + "\n".join(lines))
        keys = [line.partition(" =")[0] for line in lines]
        return {
            f"{flow.name} {one.key}": one.treatment for flow in file.flows for one in flow.findings if one.key in keys
        }

    def test_that_agree(self) -> None:
        file = imported(self.HEAD + "a->b.sync.topic.acls.enabled = false\nc->b.sync.topic.acls.enabled = false")
        assert not [one for flow in file.flows for one in flow.refused]
        acls = {config.region: config.ingress and config.ingress.acls for config in loaded(file.text)}
        assert acls == {"a": None, "b": "off", "c": "mirror"}

    def test_that_do_not(self) -> None:
        file = imported(self.HEAD + "c->b.sync.topic.acls.enabled = false\na->c.sync.topic.acls.enabled = false")
        [refused] = [one for flow in file.flows for one in flow.refused]
        assert refused.key == "c->b.sync.topic.acls.enabled"
        assert refused.reason == "is one setting, [clusters.b.ingress] acls, but mirror in a->b, off in c->b"
        acls = {config.region: config.ingress and config.ingress.acls for config in loaded(file.text)}
        assert acls == {"a": None, "b": "mirror", "c": "off"}

    def test_a_key_is_refused_only_where_it_contradicts(self) -> None:
        line = "sync.topic.configs.enabled = false"
        assert self.treatments(line, "a->b.sync.topic.configs.enabled = true") == {
            "a->b sync.topic.configs.enabled": Treatment.IGNORED,
            "a->b a->b.sync.topic.configs.enabled": Treatment.REFUSED,
            "c->b sync.topic.configs.enabled": Treatment.REFUSED,
            "a->c sync.topic.configs.enabled": Treatment.MAPPED,
        }

    def test_the_most_frequent_refresh_serves_all(self) -> None:
        file = imported(self.HEAD + "refresh.topics.interval.seconds = 20\na->c.refresh.topics.interval.seconds = 10")
        found = {config.region: config for config in loaded(file.text)}
        assert [one.egress and one.egress.topic_refresh_interval.total_seconds() for one in found.values()] == [
            10,
            None,
            20,
        ]

    @pytest.mark.parametrize(
        ("line", "of_other", "refused"),
        [
            ("refresh.topics.interval.seconds = 20", "20s", {"a->b", "c->b"}),
            ("refresh.topics.enabled = true", "the default", {"c->b"}),
        ],
    )
    def test_a_refresh_that_is_off_is_no_interval(self, line: str, of_other: str, refused: set[str]) -> None:
        file = imported(self.HEAD + line + "\nc->b.refresh.topics.enabled = false")
        found = {flow.name: one for flow in file.flows for one in flow.refused}
        assert found.keys() == refused
        assert found["c->b"].key == "c->b.refresh.topics.enabled"
        assert {one.reason for one in found.values()} == {
            f"is one setting, [clusters.b.ingress] topic_refresh_interval, but {of_other} in a->b, 0s in c->b"
        }
        target = next(config for config in loaded(file.text) if config.region == "b")
        assert target.ingress is not None
        assert target.ingress.finds_new_topics

    def test_a_refresh_that_is_off_in_all_flows(self) -> None:
        file = imported(self.HEAD + "refresh.topics.enabled = false\nc->b.refresh.topics.interval.seconds = 20")
        assert not [one for flow in file.flows for one in flow.refused]
        found = [side for config in loaded(file.text) for side in (config.egress, config.ingress) if side is not None]
        assert len(found) == 4
        assert not any(side.finds_new_topics for side in found)

    def test_where_an_archive_begins(self) -> None:
        line = "a->b.source.consumer.auto.offset.reset = latest"
        assert self.treatments(line) == {f"a->b {line.partition(' =')[0]}": Treatment.REFUSED}
        both = self.treatments(line, line.replace("->b", "->c"))
        assert set(both.values()) == {Treatment.MAPPED}

    def test_properties_of_a_client(self) -> None:
        one, other = (f"{flow}.source.consumer.fetch.min.bytes" for flow in ("a->b", "a->c"))
        assert set(self.treatments(f"{one} = 1", f"{other} = 1").values()) == {Treatment.MAPPED}
        assert set(self.treatments(f"{one} = 1", f"{other} = 2").values()) == {Treatment.REFUSED}

    def test_what_all_flows_share_is_written_once(self) -> None:
        file = imported(self.HEAD + "topics = x\na->b.groups = g")
        assert file.tables["flow_defaults"] == {"topics": ["x"]}
        assert file.tables["flows"] == {
            "a->b": {"groups": ["g"]},
            "a->c": {"groups": ["^.*"]},
            "c->b": {"groups": ["^.*"]},
        }


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
    _, target = loaded(text_of(*lines))
    settings = target.ingress
    assert settings is not None
    assert [source.heartbeats for source in settings.sources] == [is_on]
    assert settings.heartbeat_interval == timedelta(seconds=int(interval[:-1]))


def test_a_value_of_several_lines_stays_a_comment() -> None:
    assert [one.region for one in loaded(text_of("tasks.max = 1\\nregion = 'x'"))] == ["a", "b"]


def test_clusters_and_a_connector() -> None:
    """One of the two would be dropped without a word."""
    with pytest.raises(ValueError, match="has both clusters"):
        imported(FLOW + "source.cluster.alias = a\n")


@pytest.mark.parametrize("alias", ["a b", "a/b", "x" * 65])
def test_an_alias_that_is_no_name_of_a_region(alias: str) -> None:
    with pytest.raises(ValueError, match=f"the alias '{alias}' must be a region name"):
        imported(f"clusters = {alias}, c")


def test_neither_clusters_nor_a_connector() -> None:
    with pytest.raises(ValueError, match="names no flow"):
        imported("topics = .*")


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
