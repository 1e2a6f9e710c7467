"""A broker, or the object store, goes away in mid-flow and comes back: everybody stays, nothing is lost or repeated."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from functools import partial
from random import Random
from typing import TYPE_CHECKING

import pytest

from infra.local.aws import create_bucket_with_queue
from infra.local.broker import Broker
from tests.processes.flow import Flow
from tests.processes.harness import A, B
from tests.processes.s3_proxy import ANY, Answer, Cut, Fault, Lose, Reset, S3Proxy, Slow, proxied
from tests.processes.traffic import BIG_BYTES, EPOCH_MS, Draft

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tests.processes.harness import Site, Tables, Worker

pytestmark = [pytest.mark.integration, pytest.mark.long]

SEED = 7
# A broker that rolls a transaction back while it starts may leave markers out: docs/decisions/0008.
LONGER_THAN_AWAY = "60s"
A_PART = 1 << 20  # bytes of a segment: losing them is a loss
PATIENT_MS = 45_000  # the client's default session timeout: longer than any of these outages
FAULTS: Sequence[tuple[str, Fault]] = (
    (ANY, Answer(500, "InternalError")),
    (ANY, Answer(503, "SlowDown")),
    (ANY, Slow(0.7)),
    ("PutObject", Lose()),
    ("PutObject", Reset()),
    ("PutObject", Answer(409, "ConditionalRequestConflict")),
    ("GetObject", Cut(100)),
)

REFUSALS: Mapping[str, Callable[[S3Proxy], None]] = {  # as the processes name them
    "SlowDown": lambda proxy: proxy.break_(ANY, Answer(503, "SlowDown")),
    "on bucket": lambda proxy: proxy.break_(ANY, Answer(403, "AccessDenied")),  # allow … on bucket …
    "endpoint_url": S3Proxy.refuse_connections,  # correct s3.endpoint_url
}


@pytest.fixture
def proxy(site: Site) -> Iterator[S3Proxy]:
    """In front of the site's S3 server. Outlives the processes that use it."""
    with proxied(site.stack.moto.endpoint_url) as running:
        try:
            yield running
        finally:
            for worker in site.workers:
                worker.end()


def lasts(seconds: float) -> None:
    """The outage's own time."""
    threading.Event().wait(seconds)


@pytest.mark.parametrize(
    ("seconds", "end"),
    [
        pytest.param(6.0, Broker.kill, id="short, killed"),
        pytest.param(20.0, Broker.stop, id="long, stopped"),
    ],
)
def test_brokers_gone_one_after_the_other(site: Site, seconds: float, end: Callable[[Broker], None]) -> None:
    with Flow(site) as flow:
        egress = site.egress("egress", {flow.topic: {}}, session_ms=PATIENT_MS).start()
        ingress = site.ingress(
            "ingress", {"topic": flow.topic}, session_ms=PATIENT_MS, transaction_timeout=LONGER_THAN_AWAY
        ).start()
        with flow.traffic(seed=SEED) as traffic:
            flow.wait_for_more()
            for region in (A, B):
                broker = site.stack.brokers[region]
                end(broker)
                lasts(seconds)
                for worker in (egress, ingress):
                    worker.metrics()
                broker.start()
                site.check()
                flow.wait_for_more()
            words = traffic.finish()
        flow.wait_for(words)
        flow.wait_for_archive()
        site.stop(ingress, egress)
        flow.judge_target(rewinds=0)
        flow.judge_archive()
        assert flow.overlaps() == {}


@pytest.mark.parametrize("seconds", [pytest.param(6.0, id="short"), pytest.param(20.0, id="long")])
def test_object_store_in_trouble(site: Site, proxy: S3Proxy, seconds: float) -> None:
    with Flow(site) as flow:
        topics: dict[str, Tables] = {flow.topic: {}}
        egresses = [site.egress(f"egress-{n}", topics, endpoint_url=proxy.endpoint_url).start() for n in range(2)]
        ingress = site.ingress("ingress", {"topic": flow.topic}, endpoint_url=proxy.endpoint_url).start()
        with flow.traffic(seed=SEED) as traffic:
            flow.wait_for_more()
            site.wait("two members", lambda: site.holds(A, site.egress_group, members=2, partitions=flow.partitions))
            members, begun = site.members(A, site.egress_group), begins(egresses)
            for operation, fault in FAULTS:
                proxy.break_(operation, fault)
                site.wait(f"{operation} meets {fault}", lambda fault=fault: proxy.met(fault) > 0)  # type: ignore[misc]
                lasts(seconds / len(FAULTS))
                proxy.heal()
            shown = [worker.metrics() for worker in (*egresses, ingress)]
            flow.wait_for_more()
            assert site.members(A, site.egress_group) == members
            assert begins(egresses) == begun, "partitions were given away and taken again"
            words = traffic.finish()
        flow.wait_for(words)
        flow.wait_for_archive()
        site.stop(ingress, *egresses)
        flow.judge_target(rewinds=0)
        flow.judge_archive()
        assert flow.overlaps() == {}
    assert sum(each.value("store_errors", operation="put_new") for each in shown) > 0


@pytest.mark.parametrize(
    ("seconds", "reasons"),
    [
        pytest.param(0.0, ["on bucket", "endpoint_url"], id="short"),
        pytest.param(20.0, [*REFUSALS], id="long"),
    ],
)
def test_object_store_refuses_everything(site: Site, proxy: S3Proxy, seconds: float, reasons: Sequence[str]) -> None:
    """Each process is not ready and says why, until the store is back; one that is started meanwhile begins then."""
    other, queue = f"{site.name}-other", f"{site.name}-other-queue"
    create_bucket_with_queue(site.stack.moto.endpoint_url, other, queue)
    through = proxy.endpoint_url
    with Flow(site) as flow:
        egress = site.egress("egress", {flow.topic: {}}, endpoint_url=through).start()
        sync = site.sync("sync", other, endpoint_url=through).start()
        ingress_of = partial(site.ingress, bucket=other, queue=queue, endpoint_url=through)
        ingress = ingress_of("ingress", {"topic": flow.topic}).start()
        late = ingress_of("late", {"topic": flow.topic})
        with flow.traffic(seed=SEED, most=60) as traffic:
            for reason in reasons:
                flow.wait_for_more()
                REFUSALS[reason](proxy)
                if not late.expected:
                    late.start()
                lasts(seconds)
                for worker, bucket in ((egress, site.bucket), (sync, site.bucket), (ingress, other), (late, other)):
                    site.wait(f"{worker.name} says {reason}", lambda w=worker, b=bucket, r=reason: says(w, b, r))  # type: ignore[misc]
                assert begins([egress]) == flow.partitions, "partitions were given away and taken again"
                proxy.heal()
                site.wait("all are ready", lambda: all(w.readiness().get("ready") for w in site.workers))
            site.wait(
                "both ingress processes share",
                lambda: site.holds(B, site.ingress_group, members=2, partitions=flow.partitions),
            )
            words = traffic.finish()
        flow.wait_for(words)
        flow.wait_for_archive()
        site.stop(*site.workers)
        flow.judge_target(rewinds=0)
        flow.judge_archive()
        assert flow.overlaps() == {}


def says(worker: Worker, bucket: str, reason: str) -> bool:
    """Whether it is not ready, and names the bucket and the reason."""
    answer = worker.readiness()
    return answer.get("ready") is False and any(
        name.startswith(f"s3://{bucket}:") and reason in why for name, why in answer["problems"].items()
    )


def test_storage_away_and_the_spool_lost(site: Site, proxy: S3Proxy) -> None:
    """Fetching pauses when too much waits for the store, and what vanished from the disk is read again."""
    with Flow(site, partitions=1) as flow:
        topics: dict[str, Tables] = {flow.topic: {"max_segment_size": "8MiB", "max_segment_age": "3s"}}
        # one upload at a time: an upload under way has its file open and needs no name, those that wait for it have not
        egress = site.egress(
            "egress", topics, endpoint_url=proxy.endpoint_url, memory_budget="16MiB", upload_threads=1
        ).start()
        site.wait("an egress member", lambda: site.holds(A, site.egress_group, members=1, partitions=1))
        members = site.members(A, site.egress_group)
        site.wait("a place and a position", lambda: bool(egress.logged("partition_begins")))
        proxy.break_("PutObject", Answer(503, "SlowDown"))
        words = flow.produce(big_drafts(85))  # more than eight times half of the memory budget
        site.wait("fetching paused", lambda: bool(egress.logged("fetching_paused")))
        site.wait("spool files", lambda: sum(size_of(path) > A_PART for path in site.spool_files()) >= 2)
        seen = egress.metrics()
        for path in site.spool_files():
            path.unlink(missing_ok=True)
        proxy.heal()
        site.wait("reading again", lambda: egress.metrics().value("egress_rewinds") > 0)
        flow.wait_for_archive()
        ingress = site.ingress("ingress", {"topic": flow.topic}).start()
        flow.wait_for(words)
        assert site.members(A, site.egress_group) == members
        site.stop(egress, ingress)
        flow.judge_target(rewinds=0)
        flow.judge_archive()
    assert seen.value("egress_spool_bytes") > 0
    assert seen.value("egress_pauses") > 0


def size_of(path: Path) -> int:
    """0 when it is gone by now."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def big_drafts(count: int) -> list[Draft]:
    """For partition 0; they cannot be compressed."""
    random = Random(SEED)
    return [Draft(0, b"%d" % n, random.randbytes(BIG_BYTES), (), EPOCH_MS + n) for n in range(count)]


def begins(workers: Sequence[Worker]) -> int:
    """How often a partition was taken up, over all processes."""
    return sum(len(worker.logged("partition_begins")) for worker in workers)
