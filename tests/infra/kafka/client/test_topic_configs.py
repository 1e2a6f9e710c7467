from __future__ import annotations

from collections.abc import Mapping

import pytest

from infra.kafka.client.topic_configs import (
    AFTER,
    BEFORE,
    DIFFERENCE,
    NO_LIMIT,
    TopicConfigs,
    configs_before_3_6,
    limits_ms,
)


@pytest.mark.parametrize(
    ("configs", "limits"),
    [
        ({}, (NO_LIMIT, NO_LIMIT)),
        ({BEFORE: "5", AFTER: "6"}, (5, 6)),  # Kafka 4
        ({DIFFERENCE: "7"}, (7, 7)),  # before 3.6
        # between: the new configs are not set, so the old one applies
        ({BEFORE: str(NO_LIMIT), AFTER: str(NO_LIMIT), DIFFERENCE: "7"}, (7, 7)),
        ({BEFORE: "9", AFTER: str(NO_LIMIT), DIFFERENCE: "7"}, (9, 7)),
    ],
)
def test_limits_by_the_names_of_each_kafka_version(configs: Mapping[str, str], limits: tuple[int, int]) -> None:
    assert limits_ms(configs) == limits


@pytest.mark.parametrize(
    ("configs", "older"),
    [
        ({"retention.ms": "1"}, None),
        ({BEFORE: "5", AFTER: "6"}, None),  # one config cannot express two limits
        ({BEFORE: "5", "retention.ms": "1"}, {DIFFERENCE: "5", "retention.ms": "1"}),
        ({BEFORE: "5", AFTER: "5"}, {DIFFERENCE: "5"}),
    ],
)
def test_configs_for_an_older_kafka(configs: Mapping[str, str], older: Mapping[str, str] | None) -> None:
    assert configs_before_3_6(configs) == older


@pytest.mark.parametrize(
    ("policy", "is_compacted", "is_trimmed"),
    [
        (None, False, True),
        ("delete", False, True),
        ("compact", True, False),
        ("compact,delete", True, True),
        ("delete, compact", True, True),
        ("", False, False),
    ],
)
def test_what_a_topic_drops(policy: str | None, is_compacted: bool, is_trimmed: bool) -> None:
    configs = TopicConfigs({} if policy is None else {"cleanup.policy": policy})
    assert (configs.is_compacted, configs.is_trimmed) == (is_compacted, is_trimmed)
