"""Logs of commands are text for a terminal, those of services JSON for a collector; the configuration overrides
both."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import replace

import pytest

from replicator.config import Config, S3Settings
from replicator.config.settings import LogSettings
from replicator.services.command_logs import set_up_logs
from replicator.terminal.output import count_text, set_up_service_logs, set_up_work, table

UNSAID = Config(region="here", s3=S3Settings(bucket="b"))
JSON = replace(UNSAID, log=LogSettings(level="info", format="json"))
TEXT = replace(UNSAID, log=LogSettings(level="error", format="text"))


@pytest.mark.parametrize(
    ("set_up", "settings", "level", "is_json"),
    [
        (set_up_logs, UNSAID, "warning", False),
        (set_up_work, UNSAID, "warning", False),
        (set_up_service_logs, UNSAID, "info", True),
        (set_up_logs, JSON, "info", True),
        (set_up_work, JSON, "info", True),
        (set_up_service_logs, TEXT, "error", False),
    ],
)
def test_level_and_format_of_logs(
    set_up: Callable[[Config], None],
    settings: Config,
    level: str,
    is_json: bool,
    capsys: pytest.CaptureFixture[str],
) -> None:
    set_up(settings)
    for number in (logging.INFO, logging.WARNING, logging.ERROR):
        logging.getLogger("replicator.tests").log(number, "something_happened")
    lines = capsys.readouterr().err.splitlines()
    levels = ["info", "warning", "error"]
    assert len(lines) == 3 - levels.index(level)
    if is_json:
        assert [json.loads(line)["level"] for line in lines] == levels[levels.index(level) :]
    else:
        assert all(
            line.split()[1:] == [word.upper(), "replicator.tests", "something_happened"]
            for line, word in zip(lines, levels[levels.index(level) :], strict=True)
        )


def test_counts_are_read_and_offsets_are_copied() -> None:
    assert count_text(337256) == "337,256"
    rows = [("a", count_text(4109), 1000000), ("b", "", None)]
    assert table(("name", "records", "offset"), rows).splitlines() == [
        "name  records   offset",
        "a       4,109  1000000",
        "b                    -",
    ]
