"""The checkpoint topic on older brokers."""

from __future__ import annotations

import pytest

from tests.infra.kafka.internal_topics import test_checkpoint_store as current

pytestmark = [pytest.mark.integration, pytest.mark.long]


class TestKafkaCheckpointStore(current.TestKafkaCheckpointStore):
    pass
