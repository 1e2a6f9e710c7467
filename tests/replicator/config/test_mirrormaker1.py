"""MirrorMaker 1's command lines and files become ours: samples, and what becomes of every option and property.

python -m tests.replicator.config.test_mirrormaker1     writes the expected files again
"""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from formats.topic_selection import TopicPattern
from infra.settings.field import UNKNOWN
from replicator import main
from replicator.config import parse
from replicator.config.mirrormaker1 import (
    CONSUMER,
    FILES,
    OLD_KEYS,
    OPTIONS,
    PRODUCER,
    imported_flow,
    rule_of,
    topics_of,
)
from replicator.config.mirrormaker_file import ImportedFlow, imported_file
from replicator.config.mirrormaker_keys import CLIENT_KEYS, Treatment
from replicator.terminal.output import refused_by_client
from tests.examples import property_examples
from tests.replicator.test_main import Run, run

SAMPLES = Path(__file__).parents[2] / "golden" / "mm1"
NAMES = sorted(path.name for path in SAMPLES.iterdir())
SERVERS = {"bootstrap.servers": "x:1"}
__all__ = ["run"]  # a fixture


def flow_of(options: dict[str, str] | None = None, **files: dict[str, str]) -> ImportedFlow:
    consumer, producer = (SERVERS | files.get(role, {}) for role in (CONSUMER, PRODUCER))
    flow = imported_flow(options or {}, consumer, producer, source="a", target="b")
    return imported_file([flow]).flows[0]


def treated(flow: ImportedFlow, key: str) -> Treatment:
    [one] = [one for one in flow.findings if one.key == key]
    assert one.reason
    return one.treatment


def arguments(name: str) -> list[str]:
    """Of the sample's command line, with the paths of its files."""
    words = shlex.split((SAMPLES / name / "command").read_text(encoding="utf-8"))
    first = next(n for n, word in enumerate(words) if word.startswith("--"))
    return [str(SAMPLES / name / word) if word.endswith(".properties") else word for word in words[first:]]


@pytest.mark.parametrize("name", NAMES)
def test_a_sample(run: Run, name: str) -> None:
    done = run("config", "import-mm1", *arguments(name))
    assert done.out == (SAMPLES / name / "expected.toml").read_text(encoding="utf-8")
    assert done.code == (3 if "\n# refused: " in done.out else 0)
    assert "hidden" not in done.out + done.err


def test_a_file_that_is_no_properties_is_refused(run: Run, tmp_path: Path) -> None:
    consumer, producer = tmp_path / "consumer.json", tmp_path / "producer.properties"
    consumer.write_text("{not JSON")
    producer.write_text("bootstrap.servers=x:1")
    done = run("config", "import-mm1", "--consumer", str(consumer), "--producer", str(producer))
    assert done.code == 2
    assert f"{consumer}: 1 problem(s)\n  is not JSON: " in done.err


@pytest.mark.parametrize("name", NAMES)
def test_every_option_and_property_of_a_sample_is_accounted_for(run: Run, name: str) -> None:
    [flow] = json.loads(run("config", "import-mm1", *arguments(name), "--json").out)["flows"]
    keys = {one["key"] for one in flow["findings"]}
    spelled = {"--include": "--whitelist", "--exclude": "--blacklist"}
    options = {spelled.get(word, word) for word in arguments(name) if word.startswith("--")}
    assert options - keys - {"--consumer", "--producer", "--consumer.config", "--producer.config"} == set()
    for role, option in FILES.items():
        text = (SAMPLES / name / f"{role}.properties").read_text(encoding="utf-8")
        names = {line.partition("=")[0].strip() for line in text.splitlines() if line and not line.startswith("#")}
        assert {f"{option}: {one}" for one in names} - keys == set()


@pytest.mark.parametrize("name", NAMES)
def test_what_becomes_of_a_sample_loads(name: str) -> None:
    text = (SAMPLES / name / "expected.toml").read_text(encoding="utf-8")
    text = text.replace("enabled = false\n", "")  # as an operator does, who has read why
    environment = dict.fromkeys(re.findall(r"\$\{([A-Z0-9_]+)\}", text), "x:1")
    source, target = (parse(text, region=region, environment=environment) for region in ("source", "target"))
    assert source.egress is not None
    assert target.ingress is not None
    assert target.ingress.sources[0].destination("orders") == "orders"
    assert target.ingress.sources[0].syncs_nothing


def test_the_command_takes_every_option() -> None:
    group = typer.main.get_command(main.app)
    for name in ("config", "import-mm1"):
        group = group.commands[name]  # type: ignore[attr-defined]
    names = {name for parameter in group.params for name in parameter.opts}
    assert set(OPTIONS) | set(FILES.values()) <= names


@pytest.mark.parametrize("name", OPTIONS)
def test_every_option_has_its_rule(name: str) -> None:
    assert treated(flow_of({name: "x"}), name) is OPTIONS[name].treatment


@pytest.mark.parametrize("role", [CONSUMER, PRODUCER])
@pytest.mark.parametrize("key", [*CLIENT_KEYS, *OLD_KEYS])
def test_every_property_has_its_rule(role: str, key: str) -> None:
    if key == "bootstrap.servers":
        return
    rule = rule_of(key)
    assert rule is not None
    flow = flow_of(**{role: {key: "what"}})
    wanted = rule.treatment
    if key == "auto.offset.reset":
        wanted = Treatment.REFUSED if role == CONSUMER else Treatment.IGNORED
    if key == "sasl.jaas.config":
        wanted = Treatment.REFUSED  # of what is no login module
    assert treated(flow, f"{FILES[role]}: {key}") is wanted


@pytest.mark.parametrize("key", [key for key in (*OLD_KEYS, *CLIENT_KEYS) if "jaas" not in key])
def test_what_is_mapped_is_a_property_of_the_client(key: str) -> None:
    rule = rule_of(key)
    assert rule is not None
    if rule.treatment is Treatment.MAPPED and key != "auto.offset.reset":
        assert [what for _, what in refused_by_client({rule.reason: "0"}) if what.startswith(UNKNOWN)] == []


def test_what_no_client_has_is_refused() -> None:
    assert treated(flow_of(consumer={"no.such": "1"}), "--consumer: no.such") is Treatment.REFUSED


def test_stores_as_pem() -> None:
    flow = flow_of(producer={"ssl.truststore.location": "/x/ca.pem", "ssl.truststore.type": "PEM"})
    assert flow.clients["b"].values["", "ssl.ca.location"] == "/x/ca.pem"
    assert treated(flow, "--producer: ssl.truststore.location") is Treatment.MAPPED
    [refused] = [one for one in flow_of(consumer={"ssl.keystore.location": "x.jks"}).refused if "ssl" in one.key]
    assert refused.reason.endswith("in [clusters.a.kafka]")


@pytest.mark.parametrize(
    ("value", "start"), [("smallest", None), ("earliest", None), ("largest", "latest"), ("latest", "latest")]
)
def test_where_the_archive_begins(value: str, start: str | None) -> None:
    flow = flow_of(consumer={"auto.offset.reset": value})
    assert (flow.egress["start"].value if "start" in flow.egress else None) == start
    assert treated(flow, "--consumer: auto.offset.reset") is Treatment.MAPPED


def test_a_consumer_that_says_nothing_of_it_begins_with_all_there_is() -> None:
    [one] = [one for one in flow_of().findings if one.key == "--consumer: auto.offset.reset"]
    assert one.treatment is Treatment.IGNORED
    assert "earliest" in one.reason


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("exclude.internal.topics", "true", Treatment.IGNORED),
        ("exclude.internal.topics", "false", Treatment.REFUSED),
        ("partitioner.class", "org.apache.kafka.clients.producer.internals.DefaultPartitioner", Treatment.IGNORED),
        ("partitioner.class", "my.Partitioner", Treatment.REFUSED),
    ],
)
def test_values_that_are_what_is_done_here(name: str, value: str, wanted: Treatment) -> None:
    assert treated(flow_of(producer={name: value}), f"--producer: {name}") is wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (".*", ["^.*"]),
        ("a,b", ["a", "b"]),
        ('"a, b"', ["a", "b"]),
        ("a|b.c", ["a", "b.c"]),
        ("a.*,b", ["^a.*|b"]),
        ("^a.*", ["^a.*"]),
        ("(a,b)-.*", ["^(a|b)-.*"]),
    ],
)
def test_a_whitelist(text: str, wanted: list[str]) -> None:
    assert topics_of(text) == wanted


@pytest.mark.parametrize("text", ["", ",", r"\p{Alpha}", "a(", "[a&&b]"])
@pytest.mark.parametrize("option", ["--whitelist", "--blacklist"])
def test_a_list_that_only_java_reads_lets_nothing_cross(option: str, text: str) -> None:
    flow = flow_of({option: text})
    assert treated(flow, option) is Treatment.REFUSED
    assert flow.settings["enabled"] is False
    assert "enabled" not in flow_of({option: "a"}).settings


def test_a_command_line_that_selects_nothing_lets_nothing_cross() -> None:
    """kafka-mirror-maker.sh does not start without either."""
    flow = flow_of()
    assert treated(flow, "--whitelist") is Treatment.REFUSED
    assert flow.settings["enabled"] is False
    flow = flow_of({"--blacklist": "a"})
    assert (flow.settings["topics"], flow.settings["exclude"]) == (["^.*"], ["a"])
    assert "enabled" not in flow.settings


@pytest.mark.parametrize("option", ["--message.handler", "--message.handler.args"])
def test_what_a_handler_may_have_left_out_does_not_cross(option: str) -> None:
    flow = flow_of({option: "my.Handler"})
    assert treated(flow, option) is Treatment.REFUSED
    assert flow.settings["enabled"] is False


@property_examples()
@given(st.lists(st.text("abz09_-", min_size=1, max_size=8), min_size=1, max_size=5), st.sampled_from([",", "|", " , "]))
def test_names_are_matched_as_java_matches_them(names: list[str], sign: str) -> None:
    chosen = [TopicPattern(one) for one in topics_of(sign.join(names))]
    assert all(any(one.matches(name) for one in chosen) for name in names)
    assert not any(one.matches("another.topic") for one in chosen)


@pytest.mark.parametrize(("source", "target"), [("a", "a"), ("", "b"), ("a", "b c")])
def test_names_that_are_no_two_regions(run: Run, source: str, target: str) -> None:
    done = run("config", "import-mm1", *arguments("kip382"), "--source", source, "--target", target)
    assert done.code == 2
    assert done.out == ""


def test_several_sources_are_several_imports(run: Run) -> None:
    more = ("--consumer", str(SAMPLES / "old" / "consumer.properties"))
    done = run("config", "import-mm1", *arguments("kip382"), *more)
    assert done.code == 2
    assert "import each by itself" in done.err


if __name__ == "__main__":
    import subprocess
    import sys

    for each in NAMES:
        command = [sys.executable, "-m", "replicator", "config", "import-mm1", *arguments(each)]
        text = subprocess.run(command, stdout=subprocess.PIPE, check=False, text=True).stdout
        (SAMPLES / each / "expected.toml").write_text(text, encoding="utf-8")
