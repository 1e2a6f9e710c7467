"""What an application of Kafka Streams leaves in a region that is lost: recognised, and moved with its metadata."""

from __future__ import annotations

import base64
import json
import struct
from typing import TYPE_CHECKING, Any

import pytest

from infra.contracts.cluster import Committed, TopicPartition
from infra.kafka.cluster.groups import KafkaGroups
from tests.infra.kafka_groups import commit
from tests.processes.flow import Flow
from tests.processes.harness import PATIENCE, A, B
from tests.processes.traffic import KEEPS_EVERYTHING, Draft, create_topic, produce_all

if TYPE_CHECKING:
    from tests.processes.harness import Site

pytestmark = [pytest.mark.integration, pytest.mark.long]

METADATA = base64.b64encode(struct.pack(">bq", 2, 1_700_000_000_000) + b"\x00\x00\x00\x00").decode()
RECORDS = 6
DIFFERENCES = 3


def test_an_application_is_named_with_what_it_lacks(site: Site) -> None:
    application = f"{site.name}-app"
    changelog, repartition = f"{application}-counts-changelog", f"{application}-counts-repartition"
    inner = f"^{application}-.*-(changelog|repartition)$"
    with Flow(site, partitions=1) as flow:
        flow.target = flow.topic
        bootstrap = site.bootstrap(A)
        drafts = [Draft(0, b"k", b"%d" % n, (), 1_700_000_000_000 + n) for n in range(RECORDS)]
        create_topic(bootstrap, changelog, 1, {**KEEPS_EVERYTHING, "cleanup.policy": "compact"})
        create_topic(bootstrap, repartition, 1, KEEPS_EVERYTHING)
        for topic in (changelog, repartition):
            produce_all(bootstrap, topic, drafts)
        words = flow.produce(drafts)
        positions = {TopicPartition(flow.topic, 0): 4, TopicPartition(repartition, 0): 3}
        commit(
            {"bootstrap.servers": bootstrap},
            application,
            {place: Committed(offset, METADATA) for place, offset in positions.items()},
        )
        egress = site.egress(
            "egress",
            {flow.topic: {}, inner: {}},
            heartbeat_interval="1s",
            watermark_interval="1s",
            groups=[application],
            group_interval="1s",
        ).start()
        sources = [{"topic": topic, "replication_policy": "identity"} for topic in (flow.topic, inner)]
        ingress = site.ingress("ingress", *sources).start()
        flow.wait_for(words)

        def plan() -> dict[str, Any]:
            _, text = ingress.run("failover", "plan", "--json")
            found: dict[str, Any] = {"groups": {}}
            if "{\n" in text:
                found, _ = json.JSONDecoder().raw_decode(text[text.index("{\n") :])
            return found

        def verdicts() -> list[str]:
            return [one["verdict"] for one in plan()["groups"].get(application, ())]

        site.wait("the application", lambda: verdicts() == ["exact", "exact"], PATIENCE)
        egress.stop()
        [found] = plan()["streams"]
        assert (found["group"], sorted(found["topics"])) == (application, [changelog, repartition])
        [missing] = found["missing"]
        assert changelog in missing
        assert 'offsets = "preserve"' in missing

        code, text = ingress.run("failover", "execute")
        assert (code, "Kafka Streams application" in text) == (DIFFERENCES, True), text
        properties = {"bootstrap.servers": site.bootstrap(B), "log_level": "0"}
        committed = KafkaGroups(properties, properties).committed(application, list(positions))
        assert {place: (one.next_offset, one.metadata) for place, one in committed.items()} == {
            place: (offset, METADATA) for place, offset in positions.items()
        }
        ingress.stop()
