"""Which configs of a destination that keeps the source's offsets are refused, and which are warned of."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.policies.topic_configs import CREATED_WITH, ConfigSource, ConfigValue
from ingress.routing.preserved_topic import contradiction, risks

POLICIES = ("delete", "compact", "compact,delete", "delete, compact")


def at_source(**configs: str) -> Mapping[str, ConfigValue]:
    return {name.replace("_", "."): ConfigValue(value, ConfigSource.TOPIC) for name, value in configs.items()}


@given(st.sampled_from([None, *POLICIES]), st.sampled_from([None, *POLICIES]))
def test_only_a_topic_that_is_compacted_here_alone_is_refused(here: str | None, there: str | None) -> None:
    configs = {} if here is None else {"cleanup.policy": here}
    source = {} if there is None else at_source(cleanup_policy=there)
    reason = contradiction(configs, source)
    assert bool(reason) == ("compact" in (here or "") and "compact" not in (there or ""))
    assert ("offsets = 'map'" in reason) == bool(reason), "a remedy"
    assert contradiction(configs, None) == "", "a source that is not known"


@pytest.mark.parametrize(
    ("here", "there", "named"),
    [
        ({}, {}, []),
        (CREATED_WITH, {"retention_ms": "1000"}, []),
        ({"retention.ms": "1000"}, {"retention_ms": "1000"}, []),
        ({"retention.ms": "999"}, {"retention_ms": "1000"}, ["retention.ms"]),
        ({"retention.bytes": "999"}, {"retention_bytes": "-1"}, ["retention.bytes"]),
        ({"retention.bytes": "999", "cleanup.policy": "compact"}, {"cleanup_policy": "compact"}, []),
        ({"retention.ms": "999"}, None, []),
        ({"delete.retention.ms": "1", "segment.bytes": "1"}, {}, []),
        ({"unclean.leader.election.enable": "true"}, None, ["unclean.leader.election.enable"]),
        ({"unclean.leader.election.enable": "false", "message.timestamp.type": "CreateTime"}, None, []),
        ({"message.timestamp.type": "LogAppendTime"}, None, ["message.timestamp.type"]),
    ],
)
def test_what_may_be_lost_later_is_named(
    here: Mapping[str, str], there: Mapping[str, str] | None, named: list[str]
) -> None:
    found = list(risks(here, None if there is None else at_source(**there)))
    assert [text.split(" = ")[0] for text in found] == named
