"""What the target refuses for good: the cause and its remedy are named, no other waits, nothing is asked for again
and again, and it goes on by itself when the cause is gone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from infra.runtime.lifecycle import Deadline
from tests.infra.cluster import Cluster
from tests.infra.principal import GROUP, READ, TOPIC, TRANSACTIONAL_ID, WRITE
from tests.processes.flow import Flow
from tests.processes.harness import B
from tests.processes.rights import Rights
from tests.processes.traffic import EPOCH_MS, Draft

if TYPE_CHECKING:
    from tests.processes.harness import Site, Worker

pytestmark = pytest.mark.integration

OBSERVED = timedelta(seconds=20)
MOST_ATTEMPTS = 8  # in that time: the pauses double
HEALS_WITHIN = timedelta(seconds=90)


class Refused:
    """Two topics on their way to a region where the principal of ingress has its rights, until a test takes one."""

    def __init__(self, site: Site, good: Flow, bad: Flow) -> None:
        self.site, self.good, self.bad = site, good, bad
        self.flows = (good, bad)
        self.rights = Rights(site, B, "ingress", destinations=(good.target, bad.target))
        self.principal = self.rights.principal
        site.egress("egress", {flow.topic: {} for flow in self.flows}).start()
        self._sent = 0

    def ingress(self, name: str, **settings: Any) -> Worker:
        sources = [{"topic": flow.topic} for flow in self.flows]
        return self.site.ingress(name, *sources, kafka=self.rights.kafka, **settings)

    def produce(self, count: int = 300) -> Mapping[Flow, Sequence[Draft]]:
        """More for both; the last words of each."""
        words = {}
        for flow in self.flows:
            numbers = range(self._sent, self._sent + count)
            words[flow] = flow.produce([Draft(n % flow.partitions, b"k", b"%d" % n, (), EPOCH_MS + n) for n in numbers])
        self._sent += count
        return words

    def wait_for_cause(self, ingress: Worker, subject: str, *words: str) -> None:
        def named() -> bool:
            found = ingress.readiness()
            reason = next((r for name, r in found.get("stopped", {}).items() if name.startswith(subject)), "")
            return not found.get("ready", True) and all(word in reason for word in words)

        self.site.wait(f"{words} of {subject} in /readyz", named)

    @contextmanager
    def seldom_asked(self, ingress: Worker, event: str) -> Iterator[None]:
        """While it is so for a while, neither the archive nor the target is asked again and again."""

        def counted() -> tuple[float, int]:
            return ingress.metrics().value("relists"), sum(event in str(line) for line in ingress.logged())

        listings, attempts = counted()
        time = Deadline(OBSERVED)
        self.site.wait("time to pass", lambda: time.expired)
        yield
        later = counted()
        by_timer = OBSERVED / timedelta(seconds=3) * sum(flow.partitions for flow in self.flows)  # relist_interval
        assert later[0] - listings <= 1.5 * by_timer + 2, "listings"
        assert later[1] - attempts <= MOST_ATTEMPTS, event

    def wait_for(self, words: Mapping[Flow, Sequence[Draft]], *flows: Flow) -> None:
        for flow in flows or self.flows:
            flow.wait_for(words[flow], HEALS_WITHIN)

    def wait_until_ready(self, ingress: Worker) -> None:
        self.site.wait("readiness", lambda: ingress.readiness().get("ready", False), HEALS_WITHIN)

    def judge(self) -> None:
        for flow in self.flows:
            flow.judge_target(rewinds=0)


@pytest.fixture
def refused(site: Site) -> Iterator[Refused]:
    with ExitStack() as flows:
        good = flows.enter_context(Flow(site, "good", partitions=2))
        bad = flows.enter_context(Flow(site, "bad", partitions=1))
        yield Refused(site, good, bad)


@pytest.mark.long
@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
def test_a_topic_without_the_right_to_write_holds_no_other_up(refused: Refused, guarantee: str) -> None:
    words = refused.produce()
    ingress = refused.ingress("ingress", delivery=guarantee).start()
    refused.wait_for(words)
    refused.principal.forbid(TOPIC, refused.bad.target, WRITE)
    words = refused.produce()
    refused.wait_for(words, refused.good)
    name = f"a/{refused.bad.topic}"
    refused.wait_for_cause(ingress, name, "TOPIC_AUTHORIZATION_FAILED", "allow WRITE")
    words = refused.produce()
    refused.wait_for(words, refused.good)
    assert [n for n in ingress.readiness()["stopped"] if not n.startswith(name)] == []
    refused.principal.allow(TOPIC, refused.bad.target, WRITE)
    refused.wait_for(words)
    refused.wait_until_ready(ingress)
    ingress.stop()
    refused.judge()


@pytest.mark.long
def test_a_writer_that_is_refused_names_the_right_it_needs(refused: Refused) -> None:
    """One cause after the other, each while records wait."""
    site, principal, checkpoints = refused.site, refused.principal, f"{refused.site.name}.checkpoints"
    identities = (TRANSACTIONAL_ID, site.ingress_group, WRITE)
    principal.forbid(*identities, prefixed=True)
    words = refused.produce()
    ingress = refused.ingress("ingress").start()
    refused.wait_for_cause(ingress, "delivery", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "allow WRITE and DESCRIBE")
    with refused.seldom_asked(ingress, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"):
        assert refused.good.delivered() == 0
    principal.allow(*identities, prefixed=True)
    refused.wait_for(words)
    refused.wait_until_ready(ingress)

    principal.forbid(TOPIC, checkpoints, WRITE)
    words = refused.produce()
    refused.wait_for_cause(ingress, "delivery", checkpoints, "TOPIC_AUTHORIZATION_FAILED", "allow WRITE")
    with refused.seldom_asked(ingress, "Current transaction failed"):
        pass
    principal.allow(TOPIC, checkpoints, WRITE)
    refused.wait_for(words)
    refused.wait_until_ready(ingress)

    cluster = Cluster(site.stack.brokers[B])
    cluster.delete(checkpoints)
    words = refused.produce()
    refused.wait_for_cause(ingress, "delivery", checkpoints, "does not exist", "checkpoints seed")
    with refused.seldom_asked(ingress, "partition_begins"):
        pass
    cluster.create(checkpoints, configs={"cleanup.policy": "compact"})
    refused.wait_for(words)
    refused.wait_until_ready(ingress)

    principal.forbid(GROUP, site.ingress_group, READ)
    words = refused.produce()
    refused.wait_for_cause(ingress, "", "GROUP_AUTHORIZATION_FAILED")
    principal.allow(GROUP, site.ingress_group, READ)
    refused.wait_for(words)
    refused.wait_until_ready(ingress)
    ingress.stop()

    words = refused.produce()
    ingress = refused.ingress("patient", transaction_timeout="16m").start()
    refused.wait_for_cause(ingress, "delivery", "INVALID_TRANSACTION_TIMEOUT", "transaction.max.timeout.ms")
    with refused.seldom_asked(ingress, "INVALID_TRANSACTION_TIMEOUT"):
        pass
    ingress.stop()
    ingress = refused.ingress("again").start()
    refused.wait_for(words)
    refused.wait_until_ready(ingress)
    ingress.stop()
    refused.judge()
