"""A region is lost: what `failover plan` says beforehand is what is then seen, its groups continue exactly in the other
region, and go back exactly."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, Message
from confluent_kafka.admin import AdminClient

from infra.contracts.cluster import Committed, TopicPartition
from infra.local.aws import create_bucket_with_queue
from infra.local.waiting import wait_until
from replicator.failover import REHEARSAL
from tests.infra.cluster import Cluster
from tests.infra.kafka_groups import commit
from tests.processes.flow import Flow
from tests.processes.harness import PATIENCE, A, B
from tests.processes.test_groups_cross import produce_with_holes
from tests.processes.traffic import KEEPS_EVERYTHING, Draft, create_topic, produce_all

if TYPE_CHECKING:
    from tests.processes.harness import Site, Worker

pytestmark = [pytest.mark.integration, pytest.mark.long]

DONE, FAILED, DIFFERENCES = 0, 1, 3
UNSEALED = {"max_segment_age": "1h", "max_segment_messages": 1_000_000}


def test_a_region_is_lost_and_comes_back(site: Site) -> None:
    other, queue = f"{site.name}-other", f"{site.name}-other-queue"
    create_bucket_with_queue(site.stack.moto.endpoint_url, other, queue)
    with Flow(site, partitions=2) as flow:
        flow.target = f"{A}.{flow.topic}"
        source, here = TopicPartition(flow.topic, 0), TopicPartition(flow.target, 0)
        at_a = {"bootstrap.servers": site.bootstrap(A)}
        egress = egress_of(site, flow.topic, "egress").start()
        sync = site.sync("sync", other).start()
        ingress = site.ingress(
            "ingress", {"topic": flow.topic, "replication_policy": "default"}, bucket=other, queue=queue
        ).start()
        produce_with_holes(site.bootstrap(A), flow.topic)
        site.wait("the first records here", lambda: flow.delivered() == 12)
        begun = flow.ends()[0]
        ingress.stop()

        produce_with_holes(site.bootstrap(A), flow.topic)  # archived, and not delivered
        flow.wait_for_archive()
        egress.stop()
        arrived = records(site, A, source)
        reach = flow.ends()[0]
        egress = egress_of(site, flow.topic, "egress-2", **UNSEALED).start()
        produce_with_holes(site.bootstrap(A), flow.topic)  # seen, and never archived
        everything = records(site, A, source)
        end = flow.ends()[0]
        groups = {f"{site.name}.at-{offset}": offset for offset in range(end + 1)}
        for group, offset in groups.items():
            commit(at_a, group, {source: Committed(offset, "note")})
        last, idle = f"{site.name}.at-{end}", f"{site.name}.at-idle"
        commit(at_a, idle, {TopicPartition(flow.topic, 1): Committed(0, "")})

        def plan_of(worker: Worker) -> dict[str, Any]:
            _, text = worker.run("failover", "plan", "--json")
            return parsed(text)

        site.wait("the last report", lambda: {last, idle} <= plan_of(ingress)["groups"].keys(), PATIENCE)
        egress.kill()
        sync.stop()
        site.stack.brokers[A].stop()  # and its bucket is in no file below
        try:
            plan = plan_of(ingress)
            assert (plan["state"], plan["missing"]) == (None, end - reach)
            assert plan["to_deliver"] == reach - begun
            verdicts = {group: some[0]["verdict"] for group, some in plan["groups"].items()}
            assert verdicts == {
                group: "waiting" if begun < offset <= reach else "exact" if offset <= begun else "beyond"
                for group, offset in groups.items()
            } | {idle: "exact"}
            beyond = {group: some[0]["beyond"] for group, some in plan["groups"].items()}
            assert beyond == {group: max(offset - reach, 0) for group, offset in groups.items()} | {idle: 0}

            code, text = ingress.run("failover", "rehearse", "--json", "--keep")
            rehearsed = parsed(text)
            assert code == DONE, text
            assert {one["group"] for one in rehearsed["positions"]} == {f"{REHEARSAL}{g}" for g in [*groups, idle]}
            assert sum(one["is_next"] is True for one in rehearsed["positions"]) == 1 + max(
                at for at in arrived if at < begun
            )
            copy = REHEARSAL + flow.target
            first = [value for at, value in arrived.items() if at < begun]
            assert consume(site, B, f"{REHEARSAL}{site.name}.at-0", copy, len(first)) == first
            assert site.committed(B, f"{site.name}.at-0", flow.target, 2) == {}
            assert ingress.run("failover", "rehearse")[0] == DONE
            assert copy not in AdminClient({"bootstrap.servers": site.bootstrap(B)}).list_topics(timeout=10).topics

            code, text = ingress.run("failover", "execute", "--wait", "1s")
            assert (code, "no ingress runs" in text) == (FAILED, True), text
            ingress.start()
            code, text = ingress.run("failover", "execute", "--json")
            assert code == DIFFERENCES, text  # what did not arrive stays lost
            copies = records(site, B, here)
            assert list(copies.values()) == list(arrived.values())
            committed = {group: site.committed(B, group, flow.target, 2) for group in [*groups, idle]}
            assert committed[idle] == {1: 0}
            for group, offset in groups.items():
                rest = [value for at, value in arrived.items() if at >= offset]
                assert [value for at, value in copies.items() if at >= committed[group][0]] == rest, group
            assert plan_of(ingress)["state"]["phase"] == "active"

            begin, middle = f"{site.name}.at-0", f"{site.name}.at-5"
            assert consume(site, B, begin, flow.target, 4) == list(arrived.values())[:4]
            rest = [value for at, value in arrived.items() if at >= 5]
            assert consume(site, B, middle, flow.target, len(rest)) == rest
            code, text = ingress.run("failover", "execute", "--json")
            assert parsed(text)["committed"] == {}, text
            assert site.committed(B, begin, flow.target, 2)[0] != committed[begin][0]
        finally:
            site.stack.brokers[A].restore()

        code, text = ingress.run("failback", "execute", "--to", A, "--give-up")
        assert "handed over, generation 1" in text, text
        assert ingress.run("failback", "execute", "--to", A)[0] == DONE
        back = site.command("back", ingress)
        back.write({**at_region(site, A), "s3": site.s3(bucket=other)})
        code, text = back.run("failback", "execute", "--from", B, "--json")
        found = parsed(text)
        assert found["done"] is True, text
        # where a group had read records that did not arrive, it stands behind them still
        assert site.committed(A, last, flow.topic, 2) == {0: end}
        assert consume(site, A, begin, flow.topic, len(everything) - 4) == list(everything.values())[4:]
        lost = [value for at, value in everything.items() if at >= reach]
        assert consume(site, A, middle, flow.topic, len(lost)) == lost
        code, text = back.run("failback", "execute", "--from", B, "--json")
        assert code == DONE, text
        ingress.stop()


def test_what_was_produced_meanwhile_comes_back_with_its_groups(site: Site) -> None:
    """A group reads a topic of the lost region and one of the other region; both go back with it."""
    create_bucket_with_queue(site.stack.moto.endpoint_url, f"{site.name}-other", f"{site.name}-back-queue")
    local, group = f"{site.name}.local", f"{site.name}.at-work"
    with Flow(site, partitions=1) as flow:
        flow.target = f"{A}.{flow.topic}"
        source, here, there = (TopicPartition(name, 0) for name in (flow.topic, flow.target, f"{B}.{local}"))
        drafts = [Draft(0, None, b"%d" % n, (), 1_700_000_000_000 + n) for n in range(9)]
        words = flow.produce(drafts)
        commit({"bootstrap.servers": site.bootstrap(A)}, group, {source: Committed(3, "")})
        egress = egress_of(site, flow.topic, "egress").start()
        ingress = site.ingress("ingress", {"topic": flow.topic, "replication_policy": "default"}).start()
        flow.wait_for(words)
        plan = site.command("plan", ingress, "failover", "plan")
        site.wait("a plan without a loss", lambda: plan.start().wait(PATIENCE) == DONE)
        egress.stop()
        code, text = ingress.run("failover", "execute")
        assert code == DONE, text

        create_topic(site.bootstrap(B), local, 1, KEEPS_EVERYTHING)
        produce_all(site.bootstrap(B), local, drafts)
        at_b = {"bootstrap.servers": site.bootstrap(B)}
        commit(at_b, group, {here: Committed(5, ""), TopicPartition(local, 0): Committed(7, "")})
        own = f"{site.name}.at-home"  # of a consumer of b alone, which goes on
        commit(at_b, own, {here: Committed(1, "")})
        from_b = egress_of(site, local, "from-b")
        from_b.tables = {**from_b.tables, **at_region(site, B)}
        hand = site.command("hand", ingress, "failback", "execute", "--to", A)
        hand.tables = {**ingress.tables, "egress": from_b.tables["egress"]}
        assert hand.start().wait(PATIENCE) == DIFFERENCES, hand.explain("was to wait for what the group has read at b")
        from_b.start()
        site.wait("the group is handed over", lambda: hand.start().wait(PATIENCE) == DONE)

        to_a = site.ingress(
            "to-a", {"region": B, "topic": local, "replication_policy": "default"}, queue=f"{site.name}-back-queue"
        )
        to_a.tables = {**to_a.tables, **at_region(site, A)}
        to_a.start()  # only now: the second half waits for what was produced, and for a snapshot
        back = site.command("back", to_a, "failback", "execute", "--from", B)
        back.tables = to_a.tables
        site.wait("something of it at a", lambda: there.topic in topics_of(site, A))
        ended = back.start().wait(PATIENCE)
        assert ended == DONE, back.explain(f"ended with {ended}")
        assert site.committed(A, group, source.topic, 1) == {0: 5}
        assert site.committed(A, group, there.topic, 1) == {0: 7}
        assert site.committed(A, own, source.topic, 1) == {}
        assert list(records(site, A, there).values()) == [draft.value for draft in drafts]
        site.stop(ingress, from_b, to_a)


def topics_of(site: Site, region: str) -> Collection[str]:
    return AdminClient({"bootstrap.servers": site.bootstrap(region), "log_level": 0}).list_topics(timeout=10).topics


def parsed(text: str) -> dict[str, Any]:
    """The JSON in what a command printed, logs of its clients around it."""
    found, _ = json.JSONDecoder().raw_decode(text[text.index("{\n") :])
    return dict(found)


def egress_of(site: Site, topic: str, name: str, **settings: Any) -> Worker:
    return site.egress(
        name,
        {topic: settings},
        heartbeat_interval="1s",
        watermark_interval="1s",
        groups=[f"^{site.name}[.]at-.*"],
        group_interval="1s",
    )


def at_region(site: Site, region: str) -> Mapping[str, Any]:
    return {"region": region, "kafka": {"bootstrap.servers": site.bootstrap(region)}}


def records(site: Site, region: str, partition: TopicPartition) -> Mapping[int, bytes | None]:
    """By offset."""
    messages = Cluster(site.stack.brokers[region]).messages(partition)
    return {offset: message.value() for message in messages if (offset := message.offset()) is not None}


def consume(site: Site, region: str, group: str, topic: str, count: int) -> list[bytes | None]:
    """So many records as a member of the group, which commits behind the last one."""
    found: list[Message] = []
    settings = {
        "bootstrap.servers": site.bootstrap(region),
        "group.id": group,
        "auto.offset.reset": "error",
        "enable.auto.commit": False,
        "log_level": 0,
    }
    with closing(Consumer(settings)) as consumer:
        consumer.subscribe([topic])

        def read() -> bool:
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                found.append(message)
            return len(found) >= count

        assert wait_until(read, PATIENCE), f"{len(found)} of {count} records"
        if found:
            consumer.commit(message=found[-1], asynchronous=False)
    return [message.value() for message in found]
