"""The rules of S3 replication, as the check of copies asks for them."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import ExitStack

import pytest

from formats.errors import StoreRefused
from infra.contracts.deployment import ReplicationRule
from infra.runtime.lifecycle import Stop
from replicator.config import parse
from replicator.services import setups
from replicator.services.replicas import replication_rules

CONFIG = parse('region = "r"\n[s3]\nbucket = "b"')


class Setup:
    """Of a bucket whose rules these credentials may read, or not."""

    def __init__(self, *, refuses: bool) -> None:
        self.refuses, self.asked = refuses, 0

    def replication(self) -> Sequence[ReplicationRule]:
        self.asked += 1
        if self.refuses:
            raise StoreRefused("GetBucketReplication s3://b: 403")
        return [ReplicationRule(name="own", bucket="there")]


@pytest.mark.parametrize("refuses", [False, True])
def test_rules_are_read_once_and_a_refusal_stalls_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, *, refuses: bool
) -> None:
    setup = Setup(refuses=refuses)
    monkeypatch.setattr(setups, "s3_setup", lambda *_: setup)
    with ExitStack() as opened, caplog.at_level(logging.WARNING):
        rules = replication_rules(CONFIG, Stop(), opened)
        assert setup.asked == 0
        assert [len(rules()), len(rules())] == ([0, 0] if refuses else [1, 1])
    assert setup.asked == 1
    assert [one.message for one in caplog.records] == (["replication_rules_not_read"] if refuses else [])
