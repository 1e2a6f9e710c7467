"""Exactly-once delivery before the transactions of KIP-890."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.infra.kafka.producer import test_transactional as current

pytestmark = [pytest.mark.integration, pytest.mark.long]


class TestTransactionalWriter(current.TestTransactionalWriter):
    # Nothing is too far ahead by default, as it is since Kafka 4.0; and the setting had another name.
    topic_configs: Mapping[str, str] = {"retention.ms": "-1", "message.timestamp.difference.max.ms": str(10**14)}
