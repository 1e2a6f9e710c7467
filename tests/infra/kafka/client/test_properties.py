"""The client itself reports rejected librdkafka properties, all of them at once, and no connection is made."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest

from infra.kafka.client.properties import with_metadata_refresh
from infra.kafka.client.property_check import KNOWN, problems
from infra.settings.secrets import is_secret


def test_every_unknown_property_is_reported_with_the_nearest_name() -> None:
    given = {"sasl.mechanisme": "PLAIN", "bootstrap.servers": "a:1", "session.timeout": "5", "gruop.id": "g"}
    assert dict(problems(given)) == {
        "sasl.mechanisme": "unknown to the Kafka client (did you mean 'sasl.mechanism'?)",
        "session.timeout": "unknown to the Kafka client (did you mean 'session.timeout.ms'?)",
        "gruop.id": "unknown to the Kafka client (did you mean 'group.id'?)",
    }


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("session.timeout.ms", "soon", "Invalid value"),
        ("socket.timeout.ms", "1", "outside allowed range"),
        ("security.protocol", "sasl-ssl", 'Invalid value "sasl-ssl"'),
        ("log.connection.close", "maybe", "Expected bool"),
    ],
)
def test_an_invalid_value_is_rejected(name: str, value: str, why: str) -> None:
    [(found, what)] = problems({name: value})
    assert found == name
    assert what.startswith("the Kafka client refuses it: ")
    assert why in what
    assert not what.endswith("\n")


@pytest.mark.parametrize(
    "name", ["error_cb", "stats_cb", "oauth_cb", "throttle_cb", "on_commit", "default.topic.config"]
)
def test_properties_that_only_a_program_can_set_are_unknown(name: str) -> None:
    [(_, what)] = problems({name: "x"})
    assert what.startswith("unknown to the Kafka client")


def test_suggested_names_are_known_to_the_client() -> None:
    """The value does not matter: the check is that the property exists."""
    refused = dict(problems(dict.fromkeys(KNOWN, "\x01")))
    assert [name for name, what in refused.items() if what.startswith("unknown")] == []


@pytest.mark.parametrize("name", [name for name in KNOWN if is_secret(name)])
def test_a_secret_is_never_in_the_message(name: str) -> None:
    assert not any("hunter2" in what for _, what in problems({name: "hunter2"}))


def test_no_client_is_created() -> None:
    before = threading.active_count()
    assert list(problems({"bootstrap.servers": "127.0.0.1:1", "client.id": "x"})) == []
    assert threading.active_count() == before


@pytest.mark.parametrize(
    ("every", "wanted"),
    [
        (timedelta(seconds=30), "30000"),
        (timedelta(milliseconds=1), "100"),
        (timedelta(days=1), "3600000"),
    ],
)
def test_members_learn_of_new_partitions_within_the_interval_that_the_client_allows(
    every: timedelta, wanted: str
) -> None:
    assert with_metadata_refresh({"client.id": "x"}, every) == {
        "client.id": "x",
        "topic.metadata.refresh.interval.ms": wanted,
    }


def test_a_configured_refresh_interval_is_kept() -> None:
    given = {"topic.metadata.refresh.interval.ms": "-1"}
    assert with_metadata_refresh(given, timedelta(seconds=30)) == given
