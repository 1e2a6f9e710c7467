"""A bucket that replication fills, in any order and with the times of the originals: nothing is left out in silence."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from tests.processes.planted import Planted
from tests.processes.s3_proxy import Older, proxied

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.processes.harness import Site, Worker

pytestmark = [pytest.mark.integration, pytest.mark.long]

DEFAULT = {"first_segment_delay": "30m"}


@pytest.fixture
def replica(site: Site) -> Iterator[Planted]:
    with Planted(site) as planted:
        yield planted


@pytest.fixture
def endpoint_url(site: Site, replica: Planted) -> Iterator[str]:
    """Where every object is three days older than it is."""
    with proxied(site.stack.moto.endpoint_url) as proxy:
        proxy.break_("ListObjectsV2", Older(timedelta(days=3)))
        try:
            yield proxy.endpoint_url
        finally:
            for worker in site.workers:
                worker.end()


@pytest.mark.parametrize("begin", [pytest.param(0, id="begin known"), pytest.param(None, id="begin unknown")])
def test_the_last_segment_is_replicated_first(replica: Planted, endpoint_url: str, begin: int | None) -> None:
    """It is three days old, and first_segment_delay is 30 minutes."""
    if begin is not None:
        replica.begin(begin)
    replica.put(200, 299)
    ingress = replica.ingress("ingress", endpoint_url=endpoint_url, source=DEFAULT).start()
    replica.site.wait("it waits", lambda: '"waiting": {' in shown(ingress))
    assert replica.offsets() == []
    replica.put(100, 199)
    replica.put(0, 99)
    replica.wait_for((0, 299))
    assert ingress.readiness()["ready"]
    ingress.stop()


def test_what_is_replicated_too_late_is_reported_until_it_is_given_up(replica: Planted, endpoint_url: str) -> None:
    site, name = replica.site, str(replica.source)
    subject = f"{name} undelivered"
    replica.put(200, 299)
    ingress = replica.ingress("ingress", endpoint_url=endpoint_url, source={"first_segment_delay": "1s"}).start()
    replica.wait_for((200, 299))
    replica.put(100, 199)
    replica.put(0, 99)
    site.wait("a report", lambda: ingress.metrics().value("undelivered_offsets") == 200)
    ready = ingress.readiness()
    assert not ready["ready"]
    assert "[0,199]" in ready["problems"][subject]
    code, text = ingress.run("status")
    assert (code, "offsets [0,199]" in text, f"replicator skip {name} 0 --through 199" in text) == (3, True, True)
    ingress.stop()
    ingress.start()
    site.wait("the same report", lambda: subject in ingress.readiness().get("problems", {}))
    code, text = ingress.run("skip", name, "0", "--through", "199", "--reason", "too late", "--yes")
    assert (code, "given up" in text) == (0, True), text
    site.wait("no report", lambda: bool(ingress.readiness().get("ready")))
    assert ingress.metrics().value("undelivered_offsets") == 0
    replica.wait_for((200, 299))
    ingress.stop()


def test_a_backlog_of_replication_skips_nothing_at_sight(replica: Planted, endpoint_url: str) -> None:
    """on_lost is "skip" after 24 hours, and what arrives is older than that."""
    source = {**DEFAULT, "on_lost": "skip"}
    replica.put(0, 99)
    ingress = replica.ingress("ingress", endpoint_url=endpoint_url, source=source).start()
    replica.wait_for((0, 99))
    replica.put(200, 299)
    replica.site.wait("a late segment", lambda: ingress.metrics().value("late_segments") == 1)
    ingress.stop()
    ingress.start()
    replica.site.wait("it is late again", lambda: ingress.metrics().value("late_segments") == 1)
    assert ingress.metrics().value("lost_segments") == 0
    replica.put(100, 199)
    replica.wait_for((0, 299))
    ingress.stop()


def shown(ingress: Worker) -> str:
    return ingress.run("checkpoints", "show", "--json")[1]
