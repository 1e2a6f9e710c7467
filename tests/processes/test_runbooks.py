"""The pages of docs/runbooks/ and the runbook of docs/failover.md, played on real brokers: each test plants what a page
is about, and its commands do and print what the page says."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AclOperation, AdminClient, ResourceType  # type: ignore[attr-defined]  # stubs

from infra.contracts.cluster import Committed, TopicPartition
from infra.kafka.cluster.admin import KafkaAdmin
from infra.local.aws import s3_client, sqs_client
from tests.docs.markdown import ROOT, blocks
from tests.docs.runbooks import PATIENCE, RUNBOOKS, commands
from tests.infra.kafka_groups import commit
from tests.infra.log_files import lose_tails
from tests.infra.principal import Principal
from tests.processes.desk import SOURCE, TARGET, Desk
from tests.processes.harness import A, B
from tests.processes.s3_proxy import ANY, Answer, proxied
from tests.processes.traffic import KEEPS_EVERYTHING, create_topic

if TYPE_CHECKING:
    from tests.processes.harness import Site

pytestmark = [pytest.mark.integration, pytest.mark.long]

OVER = "It is over when"


def test_lag(site: Site) -> None:
    with Desk(site, "lag.md") as desk:
        desk.egress.start()
        desk.ingress.start()
        desk.produce(100)
        desk.wait_for_delivery(200)
        desk.ingress.stop()
        desk.produce(50, first=100)
        desk.wait("an archive", desk.archived)
        desk.play("1. Which half")
        assert "no ingress process is in group replicator.ingress, and 100 offsets wait" in desk.play(
            "2. Ingress is behind"
        )
        desk.ingress.start()
        desk.wait_for_delivery(300)
        desk.egress.stop()
        desk.produce(50, first=150)
        seen = desk.play("3. Egress is behind")
        assert re.search(r"source us-east-1: heartbeat \d+s ago; 0 records behind its logs", seen)
        desk.egress.start()
        desk.wait_for_delivery(400)
        desk.wait("watermarks", lambda: desk.lag() == 0)
        desk.play(OVER)


def test_cluster_lost(site: Site) -> None:
    """The cluster of the other region is the new one."""
    groups = {"groups": ["^shop$"], "group_interval": "1s"}
    with Desk(site, "cluster-lost.md", egress=groups) as desk:
        desk.produce(100)
        place = TopicPartition(desk.flow.topic, 0)
        commit({"bootstrap.servers": site.bootstrap(A)}, "shop", {place: Committed(40, "")})
        desk.egress.start()
        desk.wait("an archive", desk.archived)
        desk.wait("positions", lambda: any("/_control/v1/groups/" in key for key in site.keys()))  # noqa: SIM118
        desk.egress.stop()
        new = site.bootstrap(B)
        desk.change(desk.egress, "kafka", **{"bootstrap.servers": new})
        desk.book.names |= {"kafka.us-east-1:9092": new, "--replication-factor 3": "--replication-factor 1"}
        desk.play("2. What comes back")
        assert "200 records" in desk.play("3. Restore")
        desk.play("4. Compare")
        desk.play("5. Start what worked with it")
        desk.egress.start()
        prefix = f"data/{SOURCE}/{desk.flow.topic}@"
        desk.wait("a path of its own", lambda: any(key.startswith(prefix) for key in site.keys()))  # noqa: SIM118
        assert "orders@" in desk.play(OVER)
        assert site.committed(B, "shop", desk.flow.topic, 1) == {0: 40}


def test_gap(site: Site) -> None:
    with Desk(site, "gap.md") as desk:
        desk.egress.start()
        desk.ingress.start()
        desk.produce(100)
        desk.wait_for_delivery(200)
        desk.egress.stop()
        desk.produce(50, first=100)
        KafkaAdmin({"bootstrap.servers": site.bootstrap(A)}).delete_records({TopicPartition(desk.flow.topic, 0): 120})
        desk.egress.start()
        desk.wait("a stopped partition", lambda: bool(desk.egress.readiness().get("stopped")))
        assert "committed offset says 100, but the topic now begins at 120" in str(desk.egress.readiness()["stopped"])
        assert "overtook the egress" in desk.play("4. Where the partition has stopped")
        topics = desk.egress.tables["egress"]["topics"]
        desk.change(desk.egress, "egress", topics={name: {**own, "on_gap": "record"} for name, own in topics.items()})
        desk.wait_for_delivery(200 + 30 + 50)
        desk.play("1. What is lost")
        desk.play("2. Nothing else is missing")
        desk.play("3. Why it was late")
        desk.play("5. The loss is known")
        desk.play(OVER)


def test_topic_created_again(site: Site) -> None:
    with Desk(site, "topic-created-again.md") as desk:
        desk.egress.start()
        desk.ingress.start()
        desk.produce(100)
        desk.wait_for_delivery(200)
        recreate(desk)
        desk.produce(30)
        desk.wait("stopped", lambda: len(desk.ingress.readiness().get("stopped", ())) == 2)
        assert "was deleted and created again at the source" in desk.play("1. What waits")
        desk.play("2. Was it on purpose")
        sources = [{**one, "on_recreate": "follow"} for one in desk.ingress.tables["ingress"]["sources"]]
        desk.change(desk.ingress, "ingress", sources=sources)
        desk.wait_for_delivery(260)
        desk.wait("ready", lambda: bool(desk.ingress.readiness().get("ready")))
        desk.play(OVER)


def recreate(desk: Desk) -> None:
    admin = AdminClient({"bootstrap.servers": desk.site.bootstrap(A), "log_level": 0})
    [deleted] = admin.delete_topics([desk.flow.topic]).values()
    deleted.result(30)
    desk.wait("no topic", lambda: desk.flow.topic not in admin.list_topics(timeout=10).topics)
    create_topic(desk.site.bootstrap(A), desk.flow.topic, desk.flow.partitions, KEEPS_EVERYTHING)


def test_forked_source(site: Site) -> None:
    with Desk(site, "forked-source.md") as desk:
        desk.egress.start()
        desk.produce(50)
        desk.produce(50, first=50)
        desk.wait("an archive", desk.archived)
        desk.wait(
            "commits",
            lambda: site.committed(A, site.egress_group, desk.flow.topic, 2) == {0: 100, 1: 100},
        )
        desk.egress.stop()
        lose_tails(site.stack.brokers[A], {TopicPartition(desk.flow.topic, 0): 50})
        desk.produce(80, first=1000)
        desk.egress.start()
        desk.wait("held", lambda: bool(desk.egress.readiness().get("stopped")))
        seen = desk.play("1. Which offsets are contested")
        assert "replicator gaps accept us-east-1/orders/0 50-99" in seen
        desk.play("3a. Both truths: adopt the fork")
        desk.wait("ready", lambda: bool(desk.egress.readiness().get("ready")))
        desk.wait("the new path", lambda: any("-fork1/0/" in key for key in site.keys()))  # noqa: SIM118
        desk.play(OVER)


def test_lost_notifications(site: Site) -> None:
    with Desk(site, "lost-notifications.md", ingress={"relist_interval": "10m"}) as desk:
        desk.egress.start()
        desk.ingress.start()
        desk.produce(10)
        desk.wait_for_delivery(20)
        desk.ingress.stop()
        with_queue = s3_client(site.stack.moto.endpoint_url)
        with_queue.put_bucket_notification_configuration(Bucket=desk.bucket, NotificationConfiguration={})
        queue = sqs_client(site.stack.moto.endpoint_url)
        queue.set_queue_attributes(  # as the templates give them
            QueueUrl=desk.queue_url, Attributes={"MessageRetentionPeriod": "1209600", "VisibilityTimeout": "60"}
        )
        desk.produce(10, first=10)
        desk.wait("an archive", desk.archived)
        queue.purge_queue(QueueUrl=desk.queue_url)
        desk.play("1. Deliver now")
        desk.ingress.start()  # it lists
        desk.wait_for_delivery(40)
        assert "QueueConfigurations" not in with_queue.get_bucket_notification_configuration(Bucket=desk.bucket)
        desk.play("2. Does the bucket notify")
        desk.play("3. Does the queue keep them")
        received = desk.ingress.metrics().value("segment_stage_seconds", stage="queue")
        desk.produce(10, first=20)
        desk.wait_for_delivery(60)
        assert desk.ingress.metrics().value("segment_stage_seconds", stage="queue") > received
        desk.wait("watermarks", lambda: desk.lag() == 0)
        desk.play(OVER)
        with_queue.close()
        queue.close()


def test_object_store_away(site: Site) -> None:
    with (
        proxied(site.stack.moto.endpoint_url) as proxy,
        Desk(site, "object-store-away.md", egress={"endpoint_url": proxy.endpoint_url}) as desk,
    ):
        del desk.book.names["segments-eu-west-1"]  # both regions have one bucket here, and the page is about the other
        desk.egress.start()
        desk.produce(10)
        desk.wait("an archive", desk.archived)
        proxy.break_(ANY, Answer(503, "SlowDown"))
        desk.produce(10, first=10)
        desk.wait("the bucket's name", lambda: puts_fail(desk))
        desk.play("1. What fails, and why")
        seen = desk.play("2. How long may it last")
        assert len(re.findall(r"^replicator_egress_lag_seconds\{.*\} [1-9]", seen, re.MULTILINE)) == 2
        assert re.search(r"^replicator_egress_spool_limit_bytes [1-9]", seen, re.MULTILINE)
        desk.play("3. What `status` says meanwhile")
        assert not desk.archived()
        proxy.heal()
        desk.wait("ready", lambda: bool(desk.egress.readiness().get("ready")))
        desk.wait("the rest", desk.archived)
        desk.wait("commits", lambda: site.committed(A, site.egress_group, desk.flow.topic, 2) == {0: 20, 1: 20})
        desk.play(OVER)


def puts_fail(desk: Desk) -> bool:
    """Whether egress is not ready, because nothing can be put into its bucket."""
    return f"s3://{desk.site.bucket}: put_new" in desk.egress.readiness().get("problems", {})


def test_key_rotation(site: Site) -> None:
    users = [Principal(site.stack.brokers[B], f"{site.name}-{number}") for number in (1, 2)]
    for user in users:
        for kind in (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID):
            user.allow(kind, "*", AclOperation.ALL)
        user.allow(ResourceType.BROKER, "kafka-cluster", AclOperation.ALL)
    old, new = users
    secured = {**old.properties, "sasl.username": "${KAFKA_USER}", "sasl.password": "${KAFKA_PASSWORD}"}
    s3 = {**site.s3(), "access_key_id": "${S3_KEY}", "secret_access_key": "${S3_SECRET}"}
    site.environment |= {"KAFKA_USER": old.name, "KAFKA_PASSWORD": old.name, "S3_KEY": "old", "S3_SECRET": "old"}
    with Desk(site, "key-rotation.md", kafka={TARGET: secured}, tables={TARGET: {"s3": s3}}) as desk:
        desk.book.names["replicator-2"] = new.name
        desk.egress.start()
        desk.ingress.start()
        desk.produce(10)
        desk.wait_for_delivery(20)
        desk.play("1. The second user")
        desk.play("2. Try it before a service has it")
        desk.play("1. Try the new key")
        desk.ingress.stop()
        site.environment |= {"KAFKA_USER": new.name, "KAFKA_PASSWORD": "new-secret", "S3_KEY": "test"}
        desk.ingress.start()
        desk.produce(10, first=10)
        desk.wait_for_delivery(40)
        desk.play("3. Restart one process after the other")


def test_restore_drill(site: Site) -> None:
    with Desk(site, "restore-drill.md") as desk:
        desk.egress.start()
        desk.produce(50)
        desk.wait("an archive", desk.archived)
        desk.play("1. By hand, once")
        run_by_cron(desk)
        seen = desk.play("2. By cron")
        assert json.loads(seen.partition("\n")[0])["good"] is True
        assert re.search(r"^replicator_drill_differences\{.*\} 0\.0$", seen, re.MULTILINE)
        assert len((desk.folder / "drills.jsonl").read_text(encoding="utf-8").splitlines()) == 2
        desk.play("3. When it fails")


def run_by_cron(desk: Desk) -> None:
    """As cron does: the variables of the file, and the command behind the times and the user, `\\%` for `%`. The day is
    left out."""
    [file] = [block for block in blocks(desk.book.page) if block.mark == "file: replicator-drill"]
    lines = file.text.splitlines()
    variables = dict(line.split("=", 1) for line in lines if re.match(r"[A-Z_]+=", line))
    [entry] = [line for line in lines if line and line[0].isdigit()]
    *times, _user, command = entry.split(maxsplit=6)
    assert len(times) == 5
    test, _, command = command.replace("\\%", "%").partition(" && ")
    assert shlex.split(test)[0] == "["
    done = subprocess.run(
        ["sh", "-c", desk.book.real(command)],
        cwd=desk.folder,
        env={**desk.book.environment, **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE.total_seconds(),
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_failover(site: Site) -> None:
    groups = {"groups": ["^.*shop$"], "group_interval": "1s"}
    flows_back = {TARGET: {"egress": {"group_id": f"{site.name}.back", "topics": {f"{site.name}.payments": {}}}}}
    with Desk(site, ROOT / "docs" / "failover.md", egress=groups, tables=flows_back) as desk:
        group, place = f"{site.name}.shop", TopicPartition(desk.flow.topic, 0)
        target = desk.flow.target
        desk.egress.start()
        desk.ingress.start()
        desk.produce(100)
        desk.wait_for_delivery(200)
        commit({"bootstrap.servers": site.bootstrap(A)}, group, {place: Committed(40, "")})
        desk.wait("the group in a plan", lambda: group in desk.ingress.run("failover", "plan", "--json")[1])
        desk.egress.kill()
        site.stack.brokers[A].stop()
        try:
            seen = desk.play("1. What would be lost")
            assert "0 offsets did not arrive" in seen
            desk.play("3. Fail over")
            at_b = site.committed(B, group, target, 2)[0]
            assert desk.value_at(B, target, at_b) == b"order 40"
            commit(
                {"bootstrap.servers": site.bootstrap(B)}, group, {TopicPartition(target, 0): Committed(at_b + 9, "")}
            )
        finally:
            site.stack.brokers[A].restore()
        desk.egress.start()
        assert "handed over, generation 1" in desk.play("5. Hand the groups over, in B")
        assert "taken back" in desk.play("6. Take them back, in A")
        at_a = site.committed(A, group, desk.flow.topic, 2)[0]
        assert desk.value_at(A, desk.flow.topic, at_a) == desk.value_at(B, target, at_b + 9)
        desk.book.played.add("What the plan says")  # a plan of another day, which the page explains line by line


def test_every_runbook_is_played() -> None:
    """By a test of its name: what it does not play of its page fails that test."""
    pages = {page.stem.replace("-", "_") for page in RUNBOOKS.glob("*.md") if any(commands(page))}
    assert pages | {"failover"} == {name.removeprefix("test_") for name in globals() if name.startswith("test_")} - {
        "every_runbook_is_played"
    }
    assert SOURCE != TARGET
