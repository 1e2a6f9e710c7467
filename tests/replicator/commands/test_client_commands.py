"""`replicator client`: usage, and what the commands print of a real cluster."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from formats.messages.mirrormaker import (
    MirrorCheckpoint,
    MirrorHeartbeat,
    OffsetSync,
    encode_checkpoint,
    encode_heartbeat,
    encode_offset_sync,
)
from infra.kafka.cluster.admin import KafkaAdmin
from infra.local.stack import LocalStack
from replicator import main
from replicator.client import MirrorClient
from tests.infra.principal import Principal

KAFKA = """
region = "eu"
[kafka]
"bootstrap.servers" = "{servers}"
[s3]
bucket = "b"
"""
INGRESS = """
[sqs]
queue = "q"
[ingress]
{policy}
[[ingress.sources]]
region = "us"
topic = "^.*"
[[ingress.sources]]
region = "ap"
topic = "orders"
allow_merge = true
"""


class Outcome:
    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Outcome]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*arguments: str) -> Outcome:
        with pytest.raises(SystemExit) as caught:
            main.main(["client", *arguments])
        code = caught.value.code
        return Outcome(code if isinstance(code, int) else 0, *capsys.readouterr())

    return call


class TestRefused:
    """Before any request."""

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (("hops",), "Missing argument"),
            (("hops", "us", "--bootstrap-server", "x:1", "--config", "a.toml"), "--config, --region and --alias"),
            (("upstream", "--bootstrap-server", "x:1", "--region", "us"), "--config, --region and --alias"),
            (("upstream", "--bootstrap-server", "x:1", "--alias", "us"), "--config, --region and --alias"),
            (("topics", "--source", "us", "--heartbeats", "--bootstrap-server", "x:1"), "give one of"),
            (("offsets", "us", "--group", "^(", "--bootstrap-server", "x:1"), "no expression"),
            (("upstream", "--config", "none.toml"), "there is no such file"),
            (("upstream", "--properties", "none.properties"), "none.properties"),
        ],
    )
    def test_usage(self, run: Run, arguments: tuple[str, ...], message: str) -> None:
        outcome = run(*arguments)
        assert (outcome.code, message in outcome.err) == (2, True), outcome.err
        assert "Traceback" not in outcome.err

    def test_properties_that_are_unknown_or_missing(self, run: Run, tmp_path: Path) -> None:
        file = tmp_path / "client.properties"
        file.write_text("sasl.mechanisme = PLAIN")
        outcome = run("upstream", "--properties", str(file))
        assert outcome.code == 2
        assert "sasl.mechanisme: unknown to the Kafka client (did you mean" in outcome.err
        assert "bootstrap.servers: missing" in outcome.err
        file.write_text("ssl.truststore.location = a.jks")
        assert "set ssl.ca.location" in run("upstream", "--properties", str(file), "--bootstrap-server", "x:1").err

    @pytest.mark.parametrize(
        ("policy", "arguments", "message"),
        [
            ("", ("topics",), "ingress.replication_policy: missing"),
            ('replication_policy = "identity"', ("topics",), "give --alias, one of ap, us"),
            ('replication_policy = "identity"', ("hops", "us", "--alias", "sa"), "no source has the alias sa"),
        ],
    )
    def test_names_that_do_not_say_where_topics_come_from(
        self, run: Run, tmp_path: Path, policy: str, arguments: tuple[str, ...], message: str
    ) -> None:
        file = tmp_path / "a.toml"
        text = KAFKA.format(servers="127.0.0.1:1") + INGRESS.format(policy=policy)
        file.write_text(text.replace('topic = "^.*"', 'topic = "^.*"\nallow_merge = true'))
        outcome = run(*arguments, "--config", str(file))
        assert (outcome.code, message in outcome.err) == (2, True), outcome.err

    def test_lag_needs_what_ingress_has(self, run: Run, tmp_path: Path) -> None:
        file = tmp_path / "a.toml"
        file.write_text(KAFKA.format(servers="127.0.0.1:1"))
        outcome = run("lag", "--config", str(file))
        assert (outcome.code, "ingress: missing" in outcome.err) == (2, True)


@pytest.mark.integration
class TestOnBroker:
    """Topics as MirrorMaker 2 names them, below an alias that no other test has."""

    @pytest.fixture
    def servers(self, stack: LocalStack) -> str:
        return stack.brokers["b"].bootstrap

    @pytest.fixture
    def us(self, unique: Callable[[str], str]) -> str:
        return unique("us")

    @pytest.fixture(autouse=True)
    def topics(self, servers: str, us: str) -> None:
        ap = f"{us}-ap"
        admin, producer = KafkaAdmin({"bootstrap.servers": servers}), Producer({"bootstrap.servers": servers})
        beats = [MirrorHeartbeat(source_alias=us, target_alias="eu", timestamp_ms=n) for n in (1, 2)]
        written = {
            f"{us}.heartbeats": [*map(encode_heartbeat, beats), (b"rubbish", b"rubbish")],
            f"{us}.{ap}.heartbeats": [],
            f"{us}.orders": [],
            f"{us}.positions": [],
            f"{us}.checkpoints.internal": [
                encode_checkpoint(
                    MirrorCheckpoint(
                        group=group, topic=f"{us}.orders", partition=1, upstream_offset=9, downstream_offset=offset
                    )
                )
                for group, offset in (("billing", 7), ("audit", 5), ("billing", 8))
            ],
            f"mm2-offset-syncs.{us}.internal": [
                encode_offset_sync(OffsetSync(topic="orders", partition=1, upstream_offset=9, downstream_offset=8))
            ],
        }
        for topic, records in written.items():
            admin.create_topic(topic, partitions=1, replication_factor=1, configs={"cleanup.policy": "compact"})
            for key, value in records:
                producer.produce(topic, value, key)
        assert producer.flush(10) == 0

    def test_what_names_say(self, run: Run, servers: str, us: str, tmp_path: Path) -> None:
        here = ("--bootstrap-server", servers)
        assert run("hops", us, *here).out == "1\n"
        assert run("hops", f"{us}-ap", *here, "--json").json == {"cluster": f"{us}-ap", "hops": 2}
        assert run("hops", f"{us}-sa", *here).code == 3
        hops = {one["cluster"]: one["hops"] for one in run("upstream", *here, "--json").json}
        assert (hops[us], hops[f"{us}-ap"]) == (1, 2)
        names = [f"{us}.heartbeats", f"{us}.orders", f"{us}.positions", f"{us}.{us}-ap.heartbeats"]
        assert [one["topic"] for one in run("topics", "--source", us, *here, "--json").json] == names
        config, properties = tmp_path / "a.toml", tmp_path / "client.properties"
        config.write_text(KAFKA.format(servers=servers))
        properties.write_text(f"bootstrap.servers={servers}\nreplication.policy.separator=.")
        for where in (("--config", str(config)), ("--properties", str(properties))):
            assert run("hops", us, *where).out == "1\n"

    def test_topics_of_the_file_are_of_the_replicator(self, run: Run, servers: str, us: str, tmp_path: Path) -> None:
        config = tmp_path / "a.toml"
        settings = f'replication_policy = "default"\ncheckpoint_topic = "{us}.positions"'
        config.write_text(KAFKA.format(servers=servers) + INGRESS.format(policy=settings))
        found = {one["topic"] for one in run("topics", "--source", us, "--config", str(config), "--json").json}
        assert found == {f"{us}.heartbeats", f"{us}.orders", f"{us}.{us}-ap.heartbeats"}

    def test_records_as_the_formatters_print_them(self, run: Run, servers: str, us: str) -> None:
        here = ("--bootstrap-server", servers)
        beats = run("heartbeats", f"{us}.heartbeats", *here)
        assert beats.out == (
            f"Heartbeat{{sourceClusterAlias={us}, targetClusterAlias=eu, timestamp=1}}\n"
            f"Heartbeat{{sourceClusterAlias={us}, targetClusterAlias=eu, timestamp=2}}\n"
        )
        assert beats.code == 3
        assert f"left out of {us}.heartbeats" in beats.err
        assert "not a heartbeat of MirrorMaker 2: key b'rubbish'" in beats.err
        checkpoints = run("checkpoints", f"{us}.checkpoints.internal", *here)
        assert (checkpoints.code, checkpoints.out.splitlines()[0]) == (
            0,
            f"Checkpoint{{consumerGroupId=billing, topicPartition={us}.orders-1, upstreamOffset=9, downstreamOffset=7, "
            "metadata=}",
        )
        syncs = run("offset-syncs", f"mm2-offset-syncs.{us}.internal", *here, "--json")
        assert syncs.json == {"topic": "orders", "partition": 1, "upstream_offset": 9, "downstream_offset": 8}
        assert run("heartbeats", f"{us}.none", *here).code == 1

    def test_scram_users_by_name(self, run: Run, stack: LocalStack, us: str, tmp_path: Path) -> None:
        """A principal without the right gets an error: the client would corrupt its memory."""
        user = Principal(stack.brokers["b"], us)
        assert us in run("users", "--bootstrap-server", stack.brokers["b"].bootstrap, "--json").json
        file = tmp_path / "user.properties"
        file.write_text("\n".join(f"{name} = {value}" for name, value in user.properties.items()))
        for _ in range(3):
            outcome = run("users", "--properties", str(file))
            assert (outcome.code, "allow DESCRIBE on the cluster" in outcome.err) == (1, True), outcome.err

    def test_where_groups_stand(self, run: Run, servers: str, us: str) -> None:
        here = ("--bootstrap-server", servers)
        found = run("offsets", us, *here, "--json").json
        assert [(one["group"], one["topic"], one["partition"], one["offset"]) for one in found] == [
            ("audit", f"{us}.orders", 1, 5),
            ("billing", f"{us}.orders", 1, 8),
        ]
        assert [one["offset"] for one in run("offsets", us, "--group", "billing", *here, "--json").json] == [8]
        assert [one["offset"] for one in run("offsets", us, "--group", "^aud.*", *here, "--json").json] == [5]
        nowhere = run("offsets", f"{us}-sa", *here)
        assert (nowhere.code, "no checkpoints" in nowhere.err) == (1, True)

    def test_a_topic_that_is_followed_does_not_end(self, servers: str, us: str) -> None:
        properties = {"bootstrap.servers": servers}
        with MirrorClient(properties) as client:
            beats = client.heartbeats(f"{us}.heartbeats", follow=True)
            assert [beat.timestamp_ms for beat in islice(beats, 2)] == [1, 2]
            third = MirrorHeartbeat(source_alias=us, target_alias="eu", timestamp_ms=3)
            key, value = encode_heartbeat(third)
            producer = Producer(properties)
            producer.produce(f"{us}.heartbeats", value, key)
            assert producer.flush(10) == 0
            assert next(beats) == third
