"""`replicator console` beside egress and ingress on real brokers and a bucket, as programs read it."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Mapping
from datetime import timedelta
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote

import pytest

from infra.contracts.cluster import Committed, TopicPartition
from tests.infra.kafka_groups import commit
from tests.processes.flow import Flow
from tests.processes.harness import A, B, Site, Worker
from tests.processes.test_groups_cross import produce_with_holes
from tests.replicator.console.large_console import resident_bytes

pytestmark = [pytest.mark.integration, pytest.mark.long]

HOSTILE = "<img src=x onerror=alert(1)>\"'"
# a reading takes seconds on a loaded machine, and the next one waits three times as long
PATIENCE = timedelta(minutes=4)
MOST_BYTES = 100 << 20  # of the whole process, with the clients of cluster and bucket


def page(console: Worker, path: str) -> Mapping[str, Any]:
    """As JSON; empty while it does not answer."""
    try:
        host, port = console.address
        request = urllib.request.Request(f"http://{host}:{port}{path}", headers={"Accept": "application/json"})
        with urllib.request.urlopen(request) as answer:
            found: Mapping[str, Any] = json.loads(answer.read())
            return found
    except (URLError, IndexError):
        return {}


def html(console: Worker, path: str) -> str:
    host, port = console.address
    with urllib.request.urlopen(f"http://{host}:{port}{path}") as answer:
        return str(answer.read().decode())


def test_the_console_of_each_region(site: Site) -> None:
    with Flow(site, partitions=2) as flow:
        flow.target = f"{A}.{flow.topic}"
        produce_with_holes(site.bootstrap(A), flow.topic)
        words = flow.produce([])
        group = f"{site.name}.{HOSTILE}"
        commit({"bootstrap.servers": site.bootstrap(A)}, group, {TopicPartition(flow.topic, 0): Committed(1, "")})
        egress = site.egress(
            "egress",
            {flow.topic: {}},
            heartbeat_interval="1s",
            watermark_interval="1s",
            groups=["^.*"],
            group_interval="1s",
        ).start()
        ingress = site.ingress("ingress", {"topic": flow.topic, "replication_policy": "default"})
        ingress.write({**ingress.tables, "groups": {"sync": True, "interval": "1s", "adopt": True}})
        ingress.start()
        consoles = {
            region: Worker(
                site,
                f"console-{region}",
                ["console", "--listen", "127.0.0.1:0", "--refresh", "5s"],
                {**tables, "compaction": {"jobs": [{"name": "nightly", "cron": "0 2 * * *"}]}},
            )
            for region, tables in ((A, egress.tables), (B, ingress.tables))
        }
        site.workers += consoles.values()
        for one in consoles.values():
            one.start()
        flow.wait_for(words, PATIENCE)

        def caught_up(region: str) -> bool:
            flows = page(consoles[region], "/").get("flows", [])
            return bool(flows) and flows[0]["is_read"] and flows[0]["partitions"] == 2 and flows[0]["lag"] == 0

        for region in consoles:
            site.wait(f"the console of {region}", lambda region=region: caught_up(region), PATIENCE)  # type: ignore[misc]
        of_a, of_b = page(consoles[A], "/"), page(consoles[B], "/")
        for found in (of_a, of_b):
            assert {name: part["error"] for name, part in found["parts"].items() if part["error"]} == {}
        assert [flow_["flow"] for flow_ in (*of_a["flows"], *of_b["flows"])] == ["egress", "ingress"]
        assert of_b["flows"][0]["sources"][0]["region"] == A
        assert of_b["flows"][0]["lag_seconds"] is not None

        where = f"/topics/{A}/{flow.topic}/0"

        def map_of(region: str) -> list[Any]:
            found = page(consoles[region], where).get("segment_map") or {}
            return list(found.get("incarnations", []))

        for region in consoles:
            site.wait(f"the segments in the console of {region}", lambda region=region: bool(map_of(region)), PATIENCE)  # type: ignore[misc]
            (incarnation,) = map_of(region)
            position = page(consoles[region], where)["flows"][0]["position"]
            assert incarnation["next_offset"] == position
            assert (incarnation["holes"], incarnation["levels"][-1]["level"]) == ([], 0)
        assert 'class="block level-0"' in html(consoles[A], where)

        def translated() -> list[Any]:
            return [one for one in page(consoles[B], "/groups").get("offsets", []) if one["group"] == group]

        site.wait("the group's offset", lambda: bool(translated()), PATIENCE)
        (offset,) = translated()
        assert (offset["source_offset"], offset["exactness"]) == (1, "exact")
        text = html(consoles[B], f"/groups?q={quote(HOSTILE)}")
        assert HOSTILE not in text
        assert "&lt;img src=x onerror=alert(1)&gt;" in text
        assert page(consoles[B], "/compaction")["jobs"][0]["name"] == "nightly"
        host, port = consoles[A].address
        rebound = urllib.request.Request(f"http://{host}:{port}/", headers={"Host": "evil.example"})
        with pytest.raises(HTTPError, match="421"):
            urllib.request.urlopen(rebound)

        sizes = {region: resident_bytes(one.pid, "VmHWM") for region, one in consoles.items()}
        print({region: f"{size >> 20} MiB" for region, size in sizes.items()})
        assert all(size < MOST_BYTES for size in sizes.values()), sizes
        site.stop(egress, ingress, *consoles.values())
