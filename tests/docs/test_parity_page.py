"""docs/parity.md names nothing that is not there, and no default that is another one."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import typer

from infra.runtime.metrics import TABLE
from replicator.config.mirrormaker_keys import KEYS, SPELLINGS, Treatment
from replicator.config.reference import Entry, entries, sections
from replicator.main import app
from tests.docs.markdown import ROOT, cells, read

PAGE = ROOT / "docs" / "parity.md"
GO_FIELDS = frozenset(
    {
        "LocalRegion",
        "AWSSession",
        "AWSConfig",
        "S3Bucket",
        "S3KeyPrefix",
        "SegmentFormat",
        "KafkaBrokers",
        "KafkaTopics",
        "KafkaConsumerGroup",
        "Sources",
        "SQSQueueName",
        "KafkaSegmentEventsTopic",
        "KafkaSegmentEventsRetention",
        "KafkaCheckpointTopic",
        "KafkaProducerBatchSize",
        "KafkaProducerBatchDelay",
        "Topics",
        "CronSchedule",
        "CronLocation",
        "Parallelism",
        "CreatedBy",
        "MaxSegmentMessages",
        "MaxSegmentSize",
        "MaxSegmentAge",
        "Region",
        "Topic",
        "DestinationTopic",
        "LostSegmentTimeout",
        "LateSegmentRetries",
        "FirstSegmentDelay",
        "MinLevel",
        "MaxLevel",
        "MinSegmentAge",
        "MinSegmentCount",
        "MinSegmentSize",
        "MaxSegmentCount",
        "BatchSize",
        "Delete",
        "DefaultEgressKafkaConsumerGroup",
        "DefaultIngressKafkaConsumerGroup",
        "DefaultCompactionKafkaConsumerGroup",
        "DefaultS3KeyPrefix",
        "DefaultTopicConfig",
        "DefaultSourceConfig",
        "DefaultConfig",
        "NewEgress",
        "NewIngress",
        "NewCompaction",
        "Compact",
    }
)
"""Every field, variable and function that the documentation of the Go kafka-replicator names."""
HERE, DEFAULT, THERE = "here", "default here", "there"


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a table, by the names of its columns."""

    line: int
    cells: Mapping[str, str]

    def spans(self, column: str) -> Sequence[str]:
        return re.findall(r"`([^`]+)`", self.cells.get(column, ""))


def rows(page: Path) -> Iterator[Row]:
    """Of every table that has a column `here`."""
    head: Sequence[str] = ()
    for number, line in enumerate(read(page).splitlines(), start=1):
        if not line.startswith("|"):
            head = ()
        elif not head:
            head = cells(line)
        elif not set(line) <= set("|- ") and HERE in head:
            assert len(cells(line)) == len(head), f"{page.name}:{number}"
            yield Row(number, dict(zip(head, cells(line), strict=True)))


def settings() -> Mapping[str, Entry]:
    """By the name that the page gives them: of `[egress.topics."name"]`, `egress.topics.start`."""
    found = {}
    for entry in entries():
        section = re.sub(r'\."[^"]*"', "", entry.section.strip("[]"))
        found[f"{section}.{entry.name}".strip(".")] = entry
    return found


def tables() -> Iterator[str]:
    """Headers of the file, also of tables that another one's notes name."""
    for section in sections():
        yield re.sub(r'\."[^"]*"', "", section.header)
        yield from re.findall(r"\[[a-z_.]+\]", " ".join(section.notes))


SETTINGS, HEADERS = settings(), frozenset(tables())


def is_known(name: str) -> bool:
    """Whether it is a setting, a table of the file, a metric, a command, or something that a module has."""
    if name in SETTINGS or name in TABLE or name in HEADERS:
        return True
    return is_command(name) if " " in name else is_in_a_module(name)


def is_command(text: str) -> bool:
    """With any of its options: `replicator restore --map`."""
    program, *words = text.split()
    command: Any = typer.main.get_command(app)
    while words and words[0] in getattr(command, "commands", {}):
        command = command.commands[words.pop(0)]
    options = {option for parameter in command.params for option in parameter.opts if option.startswith("--")}
    return program == "replicator" and command.name not in (None, "replicator") and set(words) <= options


def is_in_a_module(name: str) -> bool:
    """`package.module`, or `package.module:Class.method`."""
    module, _, path = name.partition(":")
    try:
        found: Any = import_module(module)
        for attribute in filter(None, path.split(".")):
            found = getattr(found, attribute)
    except (ImportError, AttributeError, ValueError):
        return False
    return True


def unknown(page: Path) -> list[str]:
    return [f"line {row.line}: {name}" for row in rows(page) for name in row.spans(HERE) if not is_known(name)]


def wrong_defaults(page: Path) -> list[str]:
    """Of rows with one setting, where the page gives its default."""
    found = []
    for row in rows(page):
        named = [SETTINGS[name] for name in row.spans(HERE) if name in SETTINGS]
        if len(named) != 1 or not (given := row.cells.get(DEFAULT, "")):
            continue
        [entry] = named
        wanted = "required" if entry.required else "none" if entry.default is None else f"`{entry.default}`"
        if given != wanted and not (entry.name == "config_properties_exclude" and given == "MirrorMaker 2's"):
            found.append(f"line {row.line}: {entry.name} is {wanted}, not {given}")
    return found


def test_what_it_names_exists() -> None:
    assert len(list(rows(PAGE))) > 150
    assert unknown(PAGE) == []


def test_its_defaults_are_those_of_the_program() -> None:
    assert wrong_defaults(PAGE) == []


def test_every_property_that_can_be_imported_is_on_it() -> None:
    there = {name for row in rows(PAGE) for name in row.spans(THERE)}
    passed_on = {"enabled", "config.properties.blacklist", "groups.whitelist", "topics.whitelist"}
    assert sorted({*KEYS, *SPELLINGS} - there - passed_on) == []


def test_it_names_the_setting_that_a_property_is_imported_to() -> None:
    for row in rows(PAGE):
        for name in row.spans(THERE):
            rule = KEYS.get(SPELLINGS.get(name, name))
            if rule is not None and rule.treatment is Treatment.MAPPED and rule.reason in SETTINGS:
                assert rule.reason in row.spans(HERE), f"line {row.line}: {name}"


def go_names(page: Path) -> set[str]:
    """The names in the first column of the Go program's tables, without the type before the dot."""
    text = read(page).partition("## kafka-replicator (Go): functions")[2].partition("\n## ")[0]
    firsts = [cells(line)[0] for line in text.splitlines() if line.startswith("|")]
    return {span.rpartition(".")[2].removesuffix("()") for one in firsts for span in re.findall(r"`([^`]+)`", one)}


def test_every_field_of_the_go_program_is_on_it() -> None:
    assert sorted(GO_FIELDS - go_names(PAGE)) == []


def test_a_field_that_is_missing_is_found(tmp_path: Path) -> None:
    page = tmp_path / "parity.md"
    page.write_text(read(PAGE).replace("`CronLocation`", "`CronPlace`"), encoding="utf-8")
    assert GO_FIELDS - go_names(page) == {"CronLocation"}


@pytest.mark.parametrize(
    "name",
    [
        "ingress.no_such_setting",
        "[no.such.table]",
        "replicator no-such-command",
        "replicator restore --no-such-option",
        "replicator.no_such_module",
        "replicator.client:MirrorClient.no_such_method",
        "no_such_metric",
    ],
)
def test_a_name_that_is_not_there_is_found(name: str, tmp_path: Path) -> None:
    page = tmp_path / "parity.md"
    page.write_text(f"| there | here | why |\n|---|---|---|\n| x | `region`, `{name}` | |\n", encoding="utf-8")
    assert unknown(page) == [f"line 3: {name}"]


def test_a_default_that_is_another_one_is_found(tmp_path: Path) -> None:
    page = tmp_path / "parity.md"
    head = "| there | default there | here | default here | why |\n|---|---|---|---|---|\n"
    lines = ["| a | | `ingress.replication_factor` | `2` | |", "| b | | `ingress.replication_factor` | `3` | |"]
    page.write_text(head + "\n".join(lines) + "\n", encoding="utf-8")
    assert wrong_defaults(page) == ["line 4: replication_factor is `2`, not `3`"]
