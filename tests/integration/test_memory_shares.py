"""What the services give each part of their memory: `egress.memory_budget` is shared out, and ingress has the sizes of
`ingress.delivery.sizes`."""

from __future__ import annotations

from collections.abc import Callable
from threading import Semaphore
from types import ModuleType
from typing import Any

import pytest

from infra.runtime.cores import usable_cores
from ingress.delivery import sizes
from replicator.services import egress, ingress
from tests.integration.test_control_plane import Regions, regions  # noqa: F401 - the fixture

pytestmark = pytest.mark.integration

BUDGET = 64 << 20


class Recorder:
    """The arguments of what a composition root makes, by the name of its class."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        self.given: dict[str, dict[str, Any]] = {}

    def of(self, module: ModuleType, name: str) -> None:
        make: Callable[..., object] = getattr(module, name)

        def made(*positional: object, **named: object) -> object:
            self.given[name] = {**named, "positional": positional}
            return make(*positional, **named)

        self._monkeypatch.setattr(module, name, made)


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    return Recorder(monkeypatch)


def test_egress_shares_out_its_budget(recorder: Recorder, regions: Regions) -> None:  # noqa: F811
    for name in ("KafkaSourceConsumer", "SegmentBuilder", "Spool"):
        recorder.of(egress, name)
    regions.start(egress.build_egress(regions.egress("a", memory_budget=BUDGET)))
    consumer, builder, spool = (recorder.given[n] for n in ("KafkaSourceConsumer", "SegmentBuilder", "Spool"))
    shares = [consumer["memory_bytes"], builder["memory_bytes"], spool["positional"][1]]
    assert shares == [BUDGET // 4, BUDGET // 2, BUDGET // 4]
    assert sum(shares) == BUDGET
    assert builder["encode_threads"] == min(max(usable_cores(), 2), 8)


def test_ingress_bounds_its_rounds_and_its_decoding(recorder: Recorder, regions: Regions) -> None:  # noqa: F811
    for name in ("Delivery", "SegmentRunReader", "TransactionalWriter"):
        recorder.of(ingress, name)
    regions.start(ingress.build_ingress(regions.ingress("b", "a")))
    delivery, reader, writer = (recorder.given[n] for n in ("Delivery", "SegmentRunReader", "TransactionalWriter"))
    assert delivery["round_bytes"] == sizes.ROUND_BYTES
    assert delivery["round_records"] == sizes.ROUND_RECORDS
    assert (delivery["width"], delivery["small_width"]) == (sizes.DELIVERY_WIDTH, sizes.SMALL_WIDTH)
    assert writer["memory_bytes"] == sizes.PRODUCER_BYTES
    assert reader["positional"][2] == sizes.RUN_BYTES
    decoding = reader["decoding"]
    assert isinstance(decoding, Semaphore)
    taken = [decoding.acquire(blocking=False) for _ in range(sizes.DECODING_THREADS + 1)]
    for _ in range(sizes.DECODING_THREADS):
        decoding.release()
    assert taken == [True] * sizes.DECODING_THREADS + [False]
