"""Consumer groups of the source continue in this cluster at the exact record: at every offset that one can have."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Message, Producer

from infra.contracts.cluster import Committed, TopicPartition
from infra.kafka.cluster.groups import KafkaGroups
from infra.runtime.lifecycle import Stop
from replicator.client import MirrorClient, translate_offsets
from tests.golden.mm2.ask_client import MIRROR_CLIENT, UTILS
from tests.infra.cluster import Cluster
from tests.infra.kafka_groups import commit
from tests.integration.test_mirror_client_in_java import java_answers
from tests.processes.flow import Flow
from tests.processes.harness import A, B

if TYPE_CHECKING:
    from pathlib import Path

    from tests.processes.harness import Site, Worker

pytestmark = pytest.mark.integration


def produce_with_holes(bootstrap: str, topic: str, first: int = 0) -> None:
    """Plain records, and transactions of which one is aborted: markers and aborted records are holes. `first`: the
    number that is the first record's value."""
    plain = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    whole = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"{topic}.writer", "log_level": 0})
    whole.init_transactions(30)
    number = first
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


def stamps_of(messages: list[Message]) -> Mapping[int, str]:
    """By offset, as commands print them."""
    return {
        offset: datetime.fromtimestamp(message.timestamp()[1] / 1000, UTC).isoformat(timespec="milliseconds")
        for message in messages
        if (offset := message.offset()) is not None
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossed:
    """Values by offset at the source and here, and groups that stand at every offset of the source."""

    ingress: Worker
    commits: KafkaGroups
    groups: Mapping[str, int]
    records: Mapping[int, bytes | None]
    copies: Mapping[int, bytes | None]
    source: TopicPartition
    here: TopicPartition

    def at(self, group: str) -> int | None:
        return _at(self.commits, group, self.here)

    def all_continue(self) -> bool:
        return all((at := self.at(group)) is not None and self.continues(group, at) for group in self.groups)

    def continues(self, group: str, next_offset: int) -> bool:
        """Whether a consumer here reads from there on what is left for the group at the source."""
        rest = [value for at, value in self.records.items() if at >= self.groups[group]]
        return [value for at, value in self.copies.items() if at >= next_offset] == rest


@contextmanager
def crossed(site: Site) -> Iterator[Crossed]:
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
        adopting = {"sync": True, "interval": "1s", "adopt": True}  # another test's ingress may have made the topics
        ingress.write({**ingress.tables, "groups": adopting})
        ingress.start()
        flow.wait_for(words)

        properties = {"bootstrap.servers": site.bootstrap(B), "log_level": "0"}
        commits = KafkaGroups(properties, properties)
        copies = values(Cluster(site.stack.brokers[B]).messages(here))
        assert list(copies.values()) == list(records.values())
        found = Crossed(
            ingress=ingress, commits=commits, groups=groups, records=records, copies=copies, source=source, here=here
        )
        site.wait("the groups", found.all_continue)
        yield found
        site.stop(egress, ingress)


def test_m14_m17_a_group_at_any_offset_continues_at_its_record(site: Site) -> None:
    with crossed(site) as found:
        for group in found.groups:
            assert found.commits.committed(group, [found.here])[found.here].metadata == "note"

        with MirrorClient({"bootstrap.servers": site.bootstrap(B)}) as client:
            checkpoints = client.remote_offsets_of_groups(A, f"{site.name}[.]at-.*")
            syncs = list(client.offset_syncs(f"mm2-offset-syncs.{A}.internal"))
        assert {group: one[found.here].next_offset for group, one in checkpoints.items()} == {
            group: found.at(group) for group in found.groups
        }
        assert translate_offsets({"bootstrap.servers": site.bootstrap(B)}, A, f"{site.name}.at-4") == {
            found.here: Committed(found.at(f"{site.name}.at-4") or 0, "note")
        }
        records = found.records
        assert (syncs[-1].upstream_offset, syncs[-1].downstream_offset) == (max(records), max(found.copies))

        group = f"{site.name}.at-4"
        code, text = found.ingress.run("offsets", "translate", "--group", group, "--from", A, "--json")
        assert code == 0, text
        [row] = json.loads(text)
        assert (row["source_offset"], row["offset"]) == (4, found.at(group))
        code, text = found.ingress.run("offsets", "translate", "--group", group, "--from", B, "--to", A, "--json")
        assert code == 0, text
        assert [records[at] for at in records if at >= json.loads(text)[0]["source_offset"]] == [
            records[at] for at in records if at >= 4
        ]
        given = [f"--offset={found.source}={offset}" for offset in found.groups.values()]
        code, text = found.ingress.run("offsets", "translate", *given, "--from", A, "--json")
        assert code == 0, text
        cluster = Cluster(site.stack.brokers[B])
        end, stamps = cluster.end(found.here), stamps_of(cluster.messages(found.here))  # a marker is before the end
        for row, (group, offset) in zip(json.loads(text), found.groups.items(), strict=True):
            at = found.at(group) or 0
            assert (row["source_offset"], row["offset"], row["lag"]) == (offset, at, end - at)
            assert row["timestamp"] == next((stamp for there, stamp in stamps.items() if there >= at), None)
        code, text = found.ingress.run("offsets", "translate", f"--offset={found.here}={end}", "--from", B, "--to", A)
        assert (code, f"{max(records) + 1}" in text) == (0, True), text
        code, text = found.ingress.run("status", "--json")
        [entry] = [one for one in _json(text)["groups"] if one["region"] == A]
        assert {one["outcome"] for some in entry["sync"]["groups"].values() for one in some} == {"same"}


@pytest.mark.long
def test_a_group_that_an_operator_moved_is_held_until_it_is_released(site: Site) -> None:
    with crossed(site) as found:
        group, other, end = f"{site.name}.at-4", f"{site.name}.at-0", max(found.copies) + 1

        def read_all(group: str) -> None:
            everything = {found.source: Committed(max(found.records) + 1, "note")}
            commit({"bootstrap.servers": site.bootstrap(A)}, group, everything)
            site.wait(f"{group} to follow", lambda: found.at(group) == end)

        then, was = datetime.now(UTC).isoformat(), found.at(group)
        read_all(f"{site.name}.at-1")  # so a snapshot that began before then is stored when the group moves
        read_all(group)
        back = ("offsets", "translate", "--group", group, "--from", A, "--at", then)
        code, text = found.ingress.run(*back)
        assert (code, "nothing was committed" in text) == (0, True), text
        assert found.at(group) == end
        code, text = found.ingress.run(*back, "--apply", "--rewind")
        assert code == 0, text
        assert f"replicator offsets release --group {group}" in text
        assert found.at(group) == was
        read_all(other)  # a round later
        assert found.at(group) == was
        code, text = found.ingress.run("offsets", "release", "--group", group)
        assert code == 0, text
        site.wait("the group to follow again", lambda: found.at(group) == end)


@pytest.mark.long
def test_groups_never_go_back_and_skip_nothing_while_ingress_is_killed(site: Site) -> None:
    random = Random(15)
    with crossed(site) as found:
        groups, end = dict(found.groups), max(found.records) + 1
        seen = {group: found.at(group) or 0 for group in groups}

        def compare() -> None:
            for group, offset in groups.items():
                here = found.at(group) or 0
                assert here >= seen[group], f"{group} went back from {seen[group]} to {here}"
                unread = [value for at, value in found.records.items() if at >= offset]
                left = [value for at, value in found.copies.items() if at >= here]
                assert left[len(left) - len(unread) :] == unread, f"{group} skips records"
                seen[group] = here

        for _ in range(10):
            for group in random.sample(sorted(groups), 5):
                groups[group] = random.randint(groups[group], end)
                offsets = {found.source: Committed(groups[group], "note")}
                commit({"bootstrap.servers": site.bootstrap(A)}, group, offsets)
            Stop().wait(timedelta(seconds=random.uniform(0, 3)))  # any moment of two rounds, about
            found.ingress.kill()
            compare()
            found.ingress.start()
        moved = replace(found, groups=groups)
        site.wait("every group", moved.all_continue)
        compare()


@pytest.mark.long
def test_m16_java_translates_the_offsets_exactly(site: Site, tmp_path: Path) -> None:
    """RemoteClusterUtils and MirrorClient of MirrorMaker 2, on the topics that ingress writes."""
    with crossed(site) as found:
        question = {
            "properties": {"bootstrap.servers": site.bootstrap(B)},
            "aliases": [A],
            "groups": [(A, group) for group in found.groups],
            "patterns": [(A, f"{site.name}[.]at-.*")],
            "topics": {f"mm2-offset-syncs.{A}.internal": "OffsetSyncFormatter"},
        }
        [java] = java_answers([question], tmp_path)
        wanted = {group: [[found.here.topic, 0, found.at(group), "note"]] for group in found.groups}
        for who in (MIRROR_CLIENT, UTILS):
            assert dict(zip(found.groups, java[who]["offsets"], strict=True)) == wanted, who
            assert java[who]["offsets_of_groups"] == [wanted], who
        assert all(found.continues(group, found.at(group) or 0) for group in found.groups)
        last = (max(found.records), max(found.copies))
        assert (
            f"upstreamOffset={last[0]}, downstreamOffset={last[1]}" in java["printed"][f"mm2-offset-syncs.{A}.internal"]
        )


def _json(text: str) -> dict[str, Any]:
    found, _ = json.JSONDecoder().raw_decode(text[text.index("{") :])
    return dict(found)


def _at(commits: KafkaGroups, group: str, partition: TopicPartition) -> int | None:
    found = commits.committed(group, [partition]).get(partition)
    return None if found is None else found.next_offset
