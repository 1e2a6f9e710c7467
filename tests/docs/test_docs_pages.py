"""What is generated is as it would be generated now, and what pages say of the code by name is there."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer

from infra.runtime.metrics import TABLE
from infra.spark.packages import PACKAGES as SENT_TO_WORKERS
from replicator.config.mirrormaker_keys import KEYS, SPELLINGS
from replicator.config.reference import entries
from replicator.doctor.catalogue import KINDS
from replicator.main import app
from replicator.restore.conflicts import ACCEPT_BY_NAME, ACCEPTED
from tests.docs import generate
from tests.docs.markdown import GENERATED, ROOT, code_spans, pages, prose, read
from tests.docs.samples import examples

DOCS = ROOT / "docs"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PACKAGES = ("replicator", "egress", "ingress", "compaction", "formats", "infra", "bench", "tests", "docs")
WRITE_AGAIN = "write the generated pages again: make docs"


def table(page: Path, heading: str) -> list[list[str]]:
    """Cells of the first table behind `heading`, without its head."""
    text = read(page).partition(heading)[2]
    rows = re.search(r"^\|.*(?:\n\|.*)*", text, re.MULTILINE)
    assert rows is not None, heading
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in rows[0].splitlines()[2:]]


class TestGenerated:
    def test_the_configuration_reference(self) -> None:
        assert read(DOCS / "configuration.md") == generate.configuration(), WRITE_AGAIN

    def test_every_setting_is_in_it(self) -> None:
        text = read(DOCS / "configuration.md")
        assert [entry.name for entry in entries() if f"| `{entry.name}` |" not in text] == []

    def test_the_metrics(self) -> None:
        assert read(DOCS / "metrics.md") == generate.metrics(), WRITE_AGAIN

    def test_the_findings_of_the_doctor(self) -> None:
        text = read(DOCS / "doctor.md")
        assert generate.with_findings(text) == text, WRITE_AGAIN
        assert [name for name in KINDS if f"| `{name}` |" not in text] == []
        assert generate.with_findings(text.replace("| `clock-off` |", "| `clock` |")) == text

    def test_the_examples_of_formats(self) -> None:
        text = read(DOCS / "formats.md")
        assert generate.with_examples(text) == text, WRITE_AGAIN
        assert sorted(generate.named_examples(text)) == sorted(examples())

    def test_a_page_that_was_edited_by_hand_is_noticed(self) -> None:
        text = read(DOCS / "formats.md")
        assert generate.with_examples(text.replace('"next_offset":1200', '"next_offset":1201')) == text


class TestNames:
    def test_metrics_of_the_runbook_exist(self) -> None:
        rows = table(DOCS / "operations.md", "## Runbook")
        named = {name for row in rows for name in re.findall(r"^`([a-z_]+)(?:\{[^`]*\})?`(?!:)", row[0])}
        assert len(named) > 15
        assert named - set(TABLE) == set()

    def test_log_events_exist(self) -> None:
        rows = table(DOCS / "operations.md", "### Logs")
        named = {name for row in rows for name in re.findall(r"`([a-z_]+)`", row[0])}
        assert len(named) > 20
        assert named - events() == set()

    def test_what_may_be_accepted_of_a_restore(self) -> None:
        rows = table(DOCS / "restore.md", "is a warning; a selection without")
        wanted = [(one.value, what) for one, what in ACCEPTED.items() if one in ACCEPT_BY_NAME]
        assert [(name.strip("`"), what) for name, what in rows] == wanted

    @pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
    def test_files_exist(self, page: Path) -> None:
        assert [name for name in files_named(page) if not (ROOT / name).exists()] == []

    def test_pages_that_the_code_names_exist(self) -> None:
        found = {
            name
            for package in PACKAGES
            for path in (ROOT / package).rglob("*.py")
            for name in re.findall(r"docs/[\w/-]+\.(?:md|json)", path.read_text(encoding="utf-8"))
        }
        assert "docs/rights.md" in found
        assert [name for name in sorted(found) if not (ROOT / name).exists()] == []

    @pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
    def test_settings_exist(self, page: Path) -> None:
        """Those that are named with their section."""
        known = {f"{entry.section.strip('[]').partition('.')[0]}.{entry.name}" for entry in entries() if entry.section}
        sections = {name.partition(".")[0] for name in known}
        named = {span for span in code_spans(page) if re.fullmatch(r"[a-z0-9]+\.[a-z_]+", span)}
        mine = {
            name for name in named if name.partition(".")[0] in sections and not name.endswith((".md", ".py", ".yaml"))
        }
        assert mine - known - KEYS.keys() - SPELLINGS.keys() == set()

    def test_every_command_is_on_its_page(self) -> None:
        text = read(DOCS / "commands.md")
        assert [name for name in command_names(typer.main.get_command(app)) if f"`{name}" not in text] == []

    def test_every_page_is_in_the_index(self) -> None:
        index = read(DOCS / "index.md")
        assert [
            page.name for page in DOCS.glob("*.md") if page.name != "index.md" and f"({page.name})" not in index
        ] == []

    def test_every_decision_is_in_its_index(self) -> None:
        folder = DOCS / "decisions"
        listed = re.findall(r"\]\((\d{4}-[a-z0-9-]+\.md)\)", read(folder / "index.md"))
        assert listed == sorted(path.name for path in folder.glob("0*.md"))

    def test_the_readme_is_short(self) -> None:
        assert len((ROOT / "README.md").read_bytes()) <= 8_000

    def test_generated_pages_say_so(self) -> None:
        for name in GENERATED:
            assert "<!-- Written by `make docs`" in read(ROOT / name)


class TestPackage:
    """What `pip` makes of the tree, as far as it can be seen without building it."""

    def test_it_holds_each_package_and_no_tests(self) -> None:
        included = PROJECT["tool"]["setuptools"]["packages"]["find"]["include"]
        assert set(included) == {f"{package}*" for package in SENT_TO_WORKERS}

    def test_its_license_is_there(self) -> None:
        assert PROJECT["project"]["license"] == "Apache-2.0"
        for name in PROJECT["project"]["license-files"]:
            assert (ROOT / name).is_file()
        assert "Apache License\n                           Version 2.0" in read(ROOT / "LICENSE")

    def test_every_dependency_is_pinned(self) -> None:
        project = PROJECT["project"]
        wanted = [
            *project["dependencies"],
            *(one for extra in project["optional-dependencies"].values() for one in extra),
        ]
        pinned = {canonical(line.partition("==")[0]) for line in read(ROOT / "constraints.txt").splitlines()}
        assert [one for one in wanted if canonical(re.split(r"[\[<>=]", one)[0]) not in pinned] == []


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def command_names(command: Any, name: str = "") -> Iterator[str]:
    """As one writes them: `checkpoints seed`. A group that is a command by itself, too, is one."""
    below = getattr(command, "commands", {})
    if name and (not below or command.invoke_without_command):
        yield name
    for word, one in below.items():
        yield from command_names(one, f"{name} {word}".strip())


def files_named(page: Path) -> Iterator[str]:
    for span in code_spans(page):
        if re.fullmatch(rf"(?:{'|'.join(PACKAGES)})/[A-Za-z0-9_./-]*", span):
            yield span


@cache
def events() -> frozenset[str]:
    """Every text in the product that could be an event's name."""
    found = set()
    for package in ("replicator", "egress", "ingress", "compaction", "formats", "infra"):
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
                    found.add(node.value)
    return frozenset(found)


def test_prose_has_no_blocks() -> None:
    assert "$ replicator" not in prose(DOCS / "operations.md")
