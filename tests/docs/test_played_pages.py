"""How pages are played, and what every runbook has."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
import yaml

from tests.docs import operator_tools
from tests.docs.markdown import ROOT, blocks, read
from tests.docs.runbooks import EXIT_CODE, RUNBOOKS, Book, Differs, answers, commands

PAGES = sorted(page for page in RUNBOOKS.glob("*.md") if page.name != "index.md")
PLAYED = [*PAGES, *(ROOT / "docs" / name for name in ("failover.md", "migrate-ancestor.md", "migrate-mirrormaker.md"))]
ALERTS = ROOT / "infra" / "deploy" / "prometheus" / "alerts.yml"


class TestAnswers:
    @pytest.mark.parametrize(
        ("printed", "shown"),
        [
            ("region b, 2026-11-25T07:05:39+00:00\n", "region b, 2026-01-01T00:00:00Z\n"),
            ("heartbeat 56s ago, 5.4 KiB\n", "heartbeat 1m2s ago, 1.0 MiB\n"),
            ("orders      2    0\n", "orders 2 0\n"),
            ("t@UWgfZqiXSTCv1sEeaI_AUQ/0\n", "t@AAAAAAAAAAAAAAAAAAAAAA/0\n"),
            ("chain 9536bba86b89922a\n", "chain a93713c72294dc6f\n"),
            ("a\nb\nc\n", "…\nc\n"),
            ("a\n", "…\na\n…\n"),
            ("one, two, three\n", "one, … three\n"),
        ],
    )
    def test_what_may_differ(self, printed: str, shown: str) -> None:
        assert answers(printed, shown)

    @pytest.mark.parametrize(
        ("printed", "shown"),
        [
            ("20 offsets lost\n", "21 offsets lost\n"),
            ("a\nb\n", "a\n"),
            ("a\n", "a\nb\n"),
            ("a.b\n", "a-b\n"),
            ("a\nb\nc\n", "…\nb\n"),
            ("not ready\n", "ready\n"),
        ],
    )
    def test_what_may_not(self, printed: str, shown: str) -> None:
        assert not answers(printed, shown)


def book(folder: Path, text: str, **names: str) -> Book:
    page = folder / "page.md"
    page.write_text(f"# Page\n\n## One\n\n{text}", encoding="utf-8")
    return Book(page=page, folder=folder, environment=os.environ, names=names)


class TestBook:
    def test_names_are_put_in_their_place_and_back(self, tmp_path: Path) -> None:
        one = book(tmp_path, "```console\n$ echo orders of us-orders, orders/1\norders of us-orders, orders/1\n```\n")
        one.names = {"orders": "site-1.t"}
        assert one.play("One") == "orders of us-orders, orders/1\n"
        assert one.real("orders us.orders orders-2") == "site-1.t us.site-1.t orders-2"

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("```console\n$ echo a\nb\n```\n", "the page shows"),
            ("```console\n$ exit 3\n```\n", "exit code 3, not"),
            ("<!-- exit code 3 -->\n```console\n$ true\n```\n", "exit code 0, not"),
            ("```sh\nfalse\ntrue\n```\n", "exit code 1, not"),
        ],
    )
    def test_another_answer_or_end_is_found(self, text: str, expected: str, tmp_path: Path) -> None:
        with pytest.raises(Differs, match=expected):
            book(tmp_path, text).play("One")

    def test_of_several_commands_the_mark_is_about_the_last(self, tmp_path: Path) -> None:
        text = "<!-- exit code 0 or 3 -->\n```console\n$ echo a\na\n$ echo \\\n  b; exit 3\nb\n```\n"
        assert book(tmp_path, text).play("One") == "a\nb\n"

    def test_sections_that_were_not_played_are_named(self, tmp_path: Path) -> None:
        runs, not_run = "```sh\ntrue\n```\n\n", "<!-- not run: elsewhere -->\n```sh\nfalse\n```\n"
        one = book(tmp_path, f"{runs}## Two\n\n{runs}## Three\n\n{not_run}")
        assert one.left() == {"One", "Two"}
        one.play("One")
        assert one.left() == {"Two"}
        with pytest.raises(Differs, match="no command below 'Three'"):
            one.play("Three")


class TestTools:
    @pytest.mark.parametrize(
        "line",
        [
            "aws sqs get-queue-attributes --queue-url u --attribute-names All",
            "aws sqs get-queue-attributes --queue-url u --attribute-names VisibilityTimeout MessageRetentionPeriod",
            "aws s3api get-bucket-notification-configuration --bucket b",
            "kafka-topics.sh --bootstrap-server h:1 --alter --topic t --partitions 3",
            "kafka-configs.sh --bootstrap-server h:1 --alter --entity-type topics --entity-name t --add-config a=b",
        ],
    )
    def test_what_they_know(self, line: str) -> None:
        operator_tools.check(line.split())

    @pytest.mark.parametrize(
        "line",
        [
            "aws sqs get-queue-attribute --queue-url u",
            "aws sqs get-queue-attributes --queue u",
            "aws sqs get-queue-attributes --attribute-names All",
            "aws sqs get-queue-attributes u --attribute-names All",
            "aws sqs get-queue-attributes --queue-url u v",
            "aws s3api list-objects-v2 --bucket b --max-items 1",
            "kafka-topics.sh --bootstrap-server h:1 --alter --topic t",
            "kafka-configs.sh --bootstrap-server h:1 --describe --entity-type topics --entity-name t",
        ],
    )
    def test_what_they_refuse(self, line: str) -> None:
        with pytest.raises(operator_tools.UnknownUse):
            operator_tools.check(line.split())


class TestPages:
    @pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
    def test_it_has_all_parts(self, page: Path) -> None:
        text = read(page)
        assert "**Seen as.**" in text
        assert "**Why" in text
        assert "## It is over when" in text
        assert list(commands(page)), "a runbook without a command"

    @pytest.mark.parametrize("page", PLAYED, ids=lambda page: page.stem)
    def test_a_block_that_may_fail_has_one_command(self, page: Path) -> None:
        """The shell ends with the first that fails, so that a second one would not run."""
        may_fail = [block for block in blocks(page) if block.mark.startswith(EXIT_CODE) and block.language == "sh"]
        assert [str(block) for block in may_fail if len(block.text.splitlines()) != 1] == []

    def test_each_is_in_the_index_whose_alerts_exist(self) -> None:
        index = read(RUNBOOKS / "index.md")
        assert [page.name for page in PAGES if f"({page.name})" not in index] == []
        groups = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"]
        known = {rule["alert"] for group in groups for rule in group["rules"]}
        named = {name for page in RUNBOOKS.glob("*.md") for name in re.findall(r"`(Replicator[A-Za-z]+)`", read(page))}
        assert len(named) > 8
        assert named - known == set()
