"""The writer that keeps the source's offsets is built only where a frozen process is noticed before its successor."""

from __future__ import annotations

from datetime import timedelta

import pytest

from formats.errors import ConfigError
from replicator.config import Config, from_mapping
from replicator.services.preserving import check_preserving, check_session


@pytest.mark.parametrize(("session", "wait", "is_refused"), [(None, 30, False), (None, 40, True), ("9000", 10, True)])
def test_the_session_outlasts_the_wait(session: str | None, wait: int, is_refused: bool) -> None:
    properties = {} if session is None else {"session.timeout.ms": session}
    if is_refused:
        with pytest.raises(ConfigError, match=r"ingress\.preserve_wait: \d+ s must be shorter"):
            check_session(timedelta(seconds=wait), properties)
    else:
        check_session(timedelta(seconds=wait), properties)


def config(offsets: str) -> Config:
    return from_mapping(
        {
            "region": "eu",
            "s3": {"bucket": "b"},
            "kafka": {"bootstrap.servers": "k:9092", "consumer": {"session.timeout.ms": "9000"}},
            "sqs": {"queue": "q"},
            "ingress": {"sources": [{"region": "us", "topic": "t", "offsets": offsets}]},
        }
    )


def test_only_a_source_that_keeps_its_offsets_is_checked_and_also_one_that_a_reload_adds() -> None:
    check_preserving(config("map"))
    with pytest.raises(ConfigError, match=r"ingress\.preserve_wait: 10 s must be shorter"):
        check_preserving(config("preserve"))
