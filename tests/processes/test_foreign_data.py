"""No checkpoint, but the destination holds records: nothing is added to them before somebody says what they are. And no
false alarm, whatever was killed or aborted before the first record."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from infra.runtime.crash_points import Step
from tests.faults.hand import hand
from tests.faults.victim import WHENS, CrashPoint
from tests.processes.harness import B
from tests.processes.planted import Planted
from tests.processes.traffic import create_topic

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.processes.harness import Site, Tables, Worker

pytestmark = [pytest.mark.integration, pytest.mark.long]

CALL_SECONDS = 30.0


@pytest.fixture
def planted(site: Site) -> Iterator[Planted]:
    with Planted(site) as planted:
        planted.put(0, 99)
        yield planted


def stopped(planted: Planted, worker: Worker) -> str:
    """Why, once it is."""
    name = str(planted.source)
    planted.site.wait("it stops", lambda: name in worker.readiness().get("stopped", {}))
    return str(worker.readiness()["stopped"][name])


@pytest.mark.parametrize("how", ["deleted", "renamed", "emptied"])
def test_checkpoints_that_are_gone_deliver_nothing_twice(planted: Planted, how: str) -> None:
    site, topic = planted.site, f"{planted.site.name}.checkpoints"
    ingress = planted.ingress("ingress").start()
    planted.wait_for((0, 99))
    ingress.stop()
    settings: Tables = {}
    admin = AdminClient({"bootstrap.servers": site.bootstrap(B), "log_level": 0})  # ends with its last reference
    if how == "renamed":
        settings = {"checkpoint_topic": f"{topic}.new"}
    else:
        admin.delete_topics([topic])[topic].result(CALL_SECONDS)
        site.wait("it is gone", lambda: topic not in admin.list_topics(timeout=CALL_SECONDS).topics)
    if how == "emptied":
        create_topic(site.bootstrap(B), topic, 1, {"cleanup.policy": "compact"})
    planted.put(100, 199)
    ingress = planted.ingress("ingress-2", **settings).start()
    reason = stopped(planted, ingress)
    assert f"{planted.target}/0 holds records" in reason
    assert "checkpoints seed" in reason
    code, text = ingress.run("status")
    assert (code, "parked without a position" in text) == (3, True)
    code, text = ingress.run("checkpoints", "seed", str(planted.source), "--offset", "100", "--yes")
    assert code == 0, text
    planted.wait_for((0, 199))
    site.wait("ready", lambda: bool(ingress.readiness().get("ready")))
    ingress.stop()


def test_somebody_elses_live_topic(planted: Planted) -> None:
    create_topic(planted.site.bootstrap(B), planted.target, 1)
    producer = Producer({"bootstrap.servers": planted.site.bootstrap(B)})
    producer.produce(planted.target, b"theirs", b"live")
    assert producer.flush(CALL_SECONDS) == 0
    ingress = planted.ingress("ingress").start()
    assert 'on_foreign_data = "append"' in stopped(planted, ingress)
    assert planted.offsets() == []
    ingress.stop()
    ingress = planted.ingress("ingress-2", source={"on_foreign_data": "append"}).start()
    planted.wait_for((0, 99))
    ingress.stop()


def test_what_was_aborted_there_is_nobodys(planted: Planted) -> None:
    """A log whose end is not 0 may hold nothing at all."""
    create_topic(planted.site.bootstrap(B), planted.target, 1)
    producer = Producer({"bootstrap.servers": planted.site.bootstrap(B), "transactional.id": planted.site.name})
    producer.init_transactions(CALL_SECONDS)
    for _ in range(3):
        producer.begin_transaction()
        for n in range(1000):
            producer.produce(planted.target, b"aborted", b"%d" % n)
        producer.flush(CALL_SECONDS)
        producer.abort_transaction(CALL_SECONDS)
    ingress = planted.ingress("ingress").start()
    planted.wait_for((0, 99))
    assert ingress.readiness()["ready"]
    ingress.stop()


def kills() -> Iterator[object]:
    """The second commit is that of the first records."""
    for kill in product(("exactly-once", "at-least-once"), WHENS, (1, 2)):
        delivery, when, occurrence = kill
        name = f"{delivery}, {when} the {'first checkpoint' if occurrence == 1 else 'first records'}"
        yield pytest.param(*kill, id=name)


@pytest.mark.parametrize(("delivery", "when", "occurrence"), list(kills()))
def test_killed_around_its_first_checkpoint(planted: Planted, delivery: str, when: str, occurrence: int) -> None:
    """Also before the destination had a single record: a topic that a dead process created."""
    site, once = planted.site, delivery == "exactly-once"
    step = Step.COMMIT_TRANSACTION if once else Step.PRODUCE_CHECKPOINT
    victim = hand(site, planted.ingress("ingress", delivery=delivery, transaction_timeout="3s"))
    victim.start(CrashPoint(step=step, when=when, occurrence=occurrence))
    site.wait("it dies there", lambda: victim.crashed() is not None)
    victim.start()
    repeated = not once and (when, occurrence) == ("before", 2)
    planted.wait_for(*([(0, 99)] * (2 if repeated else 1)))
    site.wait("ready", lambda: bool(victim.worker.readiness().get("ready")))
    victim.leave()
    victim.left()
