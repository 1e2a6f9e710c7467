"""The proxy before a broker does what it is feared for: a write whose answer it loses was made all the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient

from tests.faults.wire import Api, Severed, Silent, apis
from tests.processes.judge import read_topic
from tests.processes.traffic import create_topic

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.faults.place import Place
    from tests.faults.wire import Wire

pytestmark = [pytest.mark.integration, pytest.mark.long]  # its users are long, too


@pytest.fixture
def wire(fault_place: Place) -> Iterator[Wire]:
    try:
        yield fault_place.wires["b"]
    finally:
        fault_place.wires["b"].heal()


def test_clients_stay_behind_the_proxy(fault_place: Place, wire: Wire) -> None:
    (broker,) = AdminClient(dict(fault_place.bootstrap("b"))).list_topics(timeout=10).brokers.values()
    assert broker.port == wire.port


def test_a_write_without_an_answer_was_made(fault_place: Place, wire: Wire, topic_name: str) -> None:
    direct = fault_place.stack.brokers["b"].bootstrap
    create_topic(direct, topic_name, 1)
    careless = Producer(
        {**fault_place.bootstrap("b"), "enable.idempotence": False, "message.timeout.ms": 2000, "retries": 0}
    )
    careless.produce(topic_name, b"known")
    assert careless.flush(10) == 0
    wire.break_(apis(Api.PRODUCE))
    met = wire.met
    careless.produce(topic_name, b"unknown")
    assert careless.flush(10) == 0
    assert wire.met > met
    wire.heal()
    assert [record.value for record in read_topic(direct, topic_name, 1)[0].records] == [b"known", b"unknown"]


@pytest.mark.parametrize("fault", [Silent(), Severed()])
def test_nothing_passes_until_it_is_healed(fault_place: Place, wire: Wire, fault: Silent | Severed) -> None:
    admin = AdminClient({**fault_place.bootstrap("b"), "log_level": 0})
    admin.list_topics(timeout=10)
    wire.break_(fault)
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=0.5)
    wire.heal()
    assert admin.list_topics(timeout=10).brokers
