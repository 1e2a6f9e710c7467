"""The Kafka client's log lines become events with a field, and their number is limited."""

from __future__ import annotations

import logging

import pytest

from infra.kafka.client.log import client_log
from infra.runtime.log_fields import COUNT, REASON


def test_lines_become_events_and_suppressed_lines_are_counted(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr("infra.kafka.client.log.time.monotonic", lambda: now[0])
    caplog.set_level(logging.DEBUG)
    for _ in range(50):
        client_log.error("FLOODTEST [%s]: connection refused", "thrd")
    client_log.error("OTHERTEST [x]: something else")
    now[0] += 11
    client_log.error("FLOODTEST [thrd]: connection refused")
    logged = [(r.getMessage(), getattr(r, REASON).split()[0], getattr(r, COUNT)) for r in caplog.records]
    assert logged == [
        ("kafka_client", "FLOODTEST", 1),
        ("kafka_client", "OTHERTEST", 1),
        ("kafka_client", "FLOODTEST", 50),
    ]


def test_the_warning_about_gapless_delivery_is_dropped(caplog: pytest.LogCaptureFixture) -> None:
    client_log.warning("CONFWARN [x]: Configuration property enable.gapless.guarantee is experimental: When set …")
    assert caplog.records == []
