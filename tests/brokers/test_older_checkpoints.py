"""The checkpoint topic on older brokers."""

from __future__ import annotations

import pytest

from tests.infra import test_checkpoints as current

pytestmark = [pytest.mark.integration, pytest.mark.long]


class TestKafkaCheckpointStore(current.TestKafkaCheckpointStore):
    pass
