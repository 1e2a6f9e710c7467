"""A process that writes the catalogue is frozen with an observation under way, and thawed when another has taken over:
it puts nothing over the newer truth."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from contextlib import closing
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from formats.control.catalog import Catalog, decode_catalog
from formats.control.keys import catalog_prefix, watermarks_prefix
from formats.control.watermarks import SourceWatermarks, decode_watermarks
from infra.local.aws import s3_client
from tests.infra.cluster import Cluster
from tests.processes.flow import Flow
from tests.processes.harness import PREFIX, A
from tests.processes.s3_proxy import S3Proxy, Slow, proxied

if TYPE_CHECKING:
    from tests.processes.harness import Site

pytestmark = [pytest.mark.integration, pytest.mark.long]

BEAT = timedelta(seconds=5)
HELD = Slow(300)
ATTEMPTS = 10  # to freeze it with a catalogue under way, not a heartbeat


def bodies(site: Site, prefix: str) -> list[bytes]:
    """In the order of their numbers."""
    with closing(s3_client(site.stack.moto.endpoint_url)) as client:
        keys = sorted(key for key in set(site.keys()) if key.startswith(prefix))
        return [client.get_object(Bucket=site.bucket, Key=key)["Body"].read() for key in keys]


def catalogs(site: Site) -> list[Catalog]:
    return [decode_catalog(body) for body in bodies(site, catalog_prefix(PREFIX, A))]


def watermarks(site: Site) -> list[SourceWatermarks]:
    return [decode_watermarks(body) for body in bodies(site, watermarks_prefix(PREFIX, A))]


def retentions(found: Sequence[Catalog], topic: str) -> list[str]:
    """Of each generation what the test changes."""
    return [(one.topics[topic].configs or {})["retention.ms"].value for one in found]


def hold_a_catalogue(site: Site, proxy: S3Proxy, cluster: Cluster, topic: str) -> str:
    """Until the writer's put of a changed catalogue hangs at the store: the change."""
    for attempt in range(ATTEMPTS):
        change = str(1_000_000_000 + attempt)
        before = len(catalogs(site))
        proxy.asked("PutObject")
        proxy.break_("PutObject", HELD)
        met = proxy.met(HELD)
        cluster.alter(topic, {"retention.ms": change})
        site.wait("a put", lambda met=met: proxy.met(HELD) > met)  # type: ignore[misc]
        if any("/catalog/" in path for path in proxy.asked("PutObject")):
            return change
        proxy.heal()  # it was a heartbeat
        site.wait("the change", lambda before=before: len(catalogs(site)) > before)  # type: ignore[misc]
    raise AssertionError("no catalogue was put")


def test_a_frozen_writer_puts_nothing_over_the_newer_truth(site: Site) -> None:
    cluster = Cluster(site.stack.brokers[A])
    intervals: Mapping[str, Any] = {"heartbeat_interval": f"{BEAT.seconds}s", "watermark_interval": "1s"}
    with proxied(site.stack.moto.endpoint_url) as proxy, Flow(site, partitions=2) as flow:
        frozen = site.egress("frozen", {flow.topic: {}}, endpoint_url=proxy.endpoint_url, **intervals).start()
        site.wait("a writer", lambda: bool(catalogs(site)) and bool(watermarks(site)))
        other = site.egress("other", {flow.topic: {}}, **intervals).start()
        site.wait("another process", lambda: bool(other.readiness().get("ready")))

        older = hold_a_catalogue(site, proxy, cluster, flow.topic)
        frozen.signal(signal.SIGSTOP)
        known = len(catalogs(site))
        cluster.alter(flow.topic, {"retention.ms": "2000000000"})
        site.wait("another writer", lambda: retentions(catalogs(site), flow.topic)[-1] == "2000000000")
        assert older not in retentions(catalogs(site), flow.topic)
        assert len(catalogs(site)) == known + 1, "the number that the frozen process was about to put"

        proxy.heal()
        frozen.signal(signal.SIGCONT)
        site.wait("it steps down", lambda: bool(frozen.logged("catalog_standby")))
        cluster.alter(flow.topic, {"retention.ms": "3000000000"})
        site.wait("the writer goes on", lambda: retentions(catalogs(site), flow.topic)[-1] == "3000000000")
        found = catalogs(site)
        assert retentions(found, flow.topic)[known:] == ["2000000000", "3000000000"]
        for generations in (found, watermarks(site)):
            assert generations[-1].writer.split(":")[1] == str(other.pid)
            observed = [one.observed_at for one in generations]
            assert observed == sorted(observed)
        assert len(frozen.logged("catalog_writer")) == len(other.logged("catalog_writer")) == 1
        site.stop(frozen, other)
