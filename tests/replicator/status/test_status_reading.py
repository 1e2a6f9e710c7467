"""A status of which a part cannot be read."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from formats.errors import BrokerUnavailable, ConfigError, StoreUnavailable, TargetError
from replicator.status.reading import NOT_ASKED, StatusReading


def failing(error: Exception) -> Callable[[], str]:
    def ask() -> str:
        raise error

    return ask


def test_a_part_that_cannot_be_read_leaves_the_others() -> None:
    reading = StatusReading()
    assert reading.read("egress", failing(TargetError("READ on orders is denied"))) is None
    assert reading.read("ingress", lambda: "here") == "here"
    assert reading.not_read == {"egress": "READ on orders is denied"}


def test_without_kafka_the_parts_of_the_bucket_are_read() -> None:
    reading = StatusReading()
    assert reading.read("egress", failing(BrokerUnavailable("no broker answers"))) is None
    assert reading.read("ingress", lambda: "here") is None, "it would wait as long"
    assert reading.read("compaction", lambda: "here", of_bucket_alone=True) == "here"
    assert reading.not_read == {"egress": "no broker answers", "ingress": NOT_ASKED}


def test_without_the_bucket_nothing_is_asked_any_more() -> None:
    reading = StatusReading()
    assert reading.read("egress", failing(StoreUnavailable("no answer"))) is None
    assert reading.read("compaction", lambda: "here", of_bucket_alone=True) is None
    assert reading.not_read == {"egress": "no answer", "compaction": NOT_ASKED}


def test_a_wrong_configuration_is_an_error_of_the_command() -> None:
    with pytest.raises(ConfigError):
        StatusReading().read("compaction", failing(ConfigError(["cron"])))
