"""Consumer groups of the source continue in this cluster at the exact record: at every offset that one can have."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Message, Producer

from infra.contracts.cluster import Committed, TopicPartition
from infra.kafka.cluster.groups import KafkaGroups
from replicator.client import MirrorClient
from tests.infra.cluster import Cluster
from tests.infra.kafka_groups import commit
from tests.processes.flow import Flow
from tests.processes.harness import A, B

if TYPE_CHECKING:
    from tests.processes.harness import Site

pytestmark = pytest.mark.integration


def produce_with_holes(bootstrap: str, topic: str) -> None:
    """Plain records, and transactions of which one is aborted: markers and aborted records are holes."""
    plain = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    whole = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"{topic}.writer", "log_level": 0})
    whole.init_transactions(30)
    number = 0
    for kind in ("plain", "commit", "abort", "commit", "plain"):
        writer = plain if kind == "plain" else whole
        if kind != "plain":
            whole.begin_transaction()
        for _ in range(3):
            writer.produce(topic, b"%d" % number, partition=0)
            number += 1
        assert writer.flush(30) == 0
        if kind == "commit":
            whole.commit_transaction(30)
        elif kind == "abort":
            whole.abort_transaction(30)
    plain.close()
    whole.close()


def values(messages: list[Message]) -> Mapping[int, bytes | None]:
    return {offset: message.value() for message in messages if (offset := message.offset()) is not None}


def test_a_group_at_any_offset_continues_at_its_record(site: Site) -> None:
    with Flow(site, partitions=1) as flow:
        flow.target = f"{A}.{flow.topic}"
        source, here = TopicPartition(flow.topic, 0), TopicPartition(flow.target, 0)
        produce_with_holes(site.bootstrap(A), flow.topic)
        words = flow.produce([])
        records = values(Cluster(site.stack.brokers[A]).messages(source))
        end = max(records) + 1
        groups = {f"{site.name}.at-{offset}": offset for offset in range(end + 1)}
        for group, offset in groups.items():
            commit({"bootstrap.servers": site.bootstrap(A)}, group, {source: Committed(offset, "note")})

        egress = site.egress(
            "egress",
            {flow.topic: {}},
            heartbeat_interval="1s",
            groups=[f"^{site.name}[.]at-.*"],
            group_interval="1s",
        ).start()
        ingress = site.ingress("ingress", {"topic": flow.topic, "replication_policy": "default"})
        ingress.write({**ingress.tables, "groups": {"sync": True, "interval": "1s"}})
        ingress.start()
        flow.wait_for(words)

        properties = {"bootstrap.servers": site.bootstrap(B), "log_level": "0"}
        commits = KafkaGroups(properties, properties)
        copies = values(Cluster(site.stack.brokers[B]).messages(here))
        assert list(copies.values()) == list(records.values())
        rest = {group: [value for at, value in records.items() if at >= offset] for group, offset in groups.items()}

        def reads(group: str) -> list[bytes | None] | None:
            """What it would read here next."""
            offset = _at(commits, group, here)
            return None if offset is None else [value for at, value in copies.items() if at >= offset]

        site.wait("the groups", lambda: all(reads(group) == some for group, some in rest.items()))
        assert {commits.committed(group, [here])[here].metadata for group in groups} == {"note"}

        with MirrorClient({"bootstrap.servers": site.bootstrap(B)}) as client:
            checkpoints = client.remote_offsets_of_groups(A, f"{site.name}[.]at-.*")
            syncs = list(client.offset_syncs(f"mm2-offset-syncs.{A}.internal"))
        assert {group: found[here].next_offset for group, found in checkpoints.items()} == {
            group: _at(commits, group, here) for group in groups
        }
        assert (syncs[-1].upstream_offset, syncs[-1].downstream_offset) == (max(records), max(copies))

        group = f"{site.name}.at-4"
        code, text = ingress.run("offsets", "translate", "--group", group, "--from", A, "--json")
        assert code == 0, text
        [found] = json.loads(text)
        assert (found["source_offset"], found["offset"]) == (4, _at(commits, group, here))
        code, text = ingress.run("offsets", "translate", "--group", group, "--from", B, "--to", A, "--json")
        assert code == 0, text
        assert [records[at] for at in records if at >= json.loads(text)[0]["source_offset"]] == [
            records[at] for at in records if at >= 4
        ]
        code, text = ingress.run("status", "--json")
        [entry] = [one for one in _json(text)["groups"] if one["region"] == A]
        assert {one["outcome"] for some in entry["sync"]["groups"].values() for one in some} == {"same"}

        then, was = datetime.now(UTC).isoformat(), _at(commits, group, here)
        commit({"bootstrap.servers": site.bootstrap(A)}, group, {source: Committed(end, "note")})
        site.wait("the group to follow", lambda: _at(commits, group, here) == max(copies) + 1)
        back = ("offsets", "translate", "--group", group, "--from", A, "--at", then, "--apply", "--rewind")
        code, text = ingress.run(*back)
        assert code == 0, text
        assert f"replicator offsets release --group {group}" in text
        other = f"{site.name}.at-0"  # a round later
        commit({"bootstrap.servers": site.bootstrap(A)}, other, {source: Committed(end, "note")})
        site.wait("another group to follow", lambda: _at(commits, other, here) == max(copies) + 1)
        assert _at(commits, group, here) == was
        code, text = ingress.run("offsets", "release", "--group", group)
        assert code == 0, text
        site.wait("the group to follow again", lambda: _at(commits, group, here) == max(copies) + 1)
        site.stop(egress, ingress)


def _json(text: str) -> dict[str, Any]:
    found, _ = json.JSONDecoder().raw_decode(text[text.index("{") :])
    return dict(found)


def _at(commits: KafkaGroups, group: str, partition: TopicPartition) -> int | None:
    found = commits.committed(group, [partition]).get(partition)
    return None if found is None else found.next_offset
