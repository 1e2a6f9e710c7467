"""The doctor on real brokers, a real bucket and its queue: nothing to find where all is well, and planted causes found.

What moto and the brokers of a test do not have (S3 replication of a prefix, several brokers) is planted in facts:
tests/replicator/doctor/test_findings.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from infra.local.aws import create_bucket_with_queue, s3_client, sqs_client
from infra.local.stack import LocalStack
from infra.local.waiting import wait_until
from infra.runtime.lifecycle import Deadline, SystemClock
from replicator import main
from replicator.config import Config, from_mapping
from replicator.doctor.catalogue import CHECKS
from replicator.doctor.facts import Unread
from replicator.doctor.findings import Diagnosis, Severity, examine
from replicator.doctor.gather import gather, roles_of
from replicator.services.ingress import build_ingress
from tests.infra.cluster import Cluster
from tests.infra.principal import DESCRIBE, DESCRIBE_CONFIGS, GROUP, READ, TOPIC, WRITE, Principal
from tests.integration.running import running_services
from tests.processes.harness import to_toml

pytestmark = pytest.mark.integration

PREFIX, HERE, THERE = "data", "b", "a"
SOON = timedelta(seconds=4)
COMPACT = {"cleanup.policy": "compact"}


class Ward:
    """A deployment of region b that is well: bucket, queue with a dead-letter queue, and topics."""

    def __init__(self, stack: LocalStack, unique: Callable[[str], str]) -> None:
        self.url, self.bucket, self.queue = stack.moto.endpoint_url, unique("bucket"), unique("queue")
        self.topic, self.cluster = unique("orders"), Cluster(stack.brokers["b"])
        self.own = {name: unique(name) for name in ("segment-events", "checkpoint", "offset-map", "ledger")}
        self.groups = {name: unique(name) for name in ("egress", "ingress")}
        self.s3, self.sqs = s3_client(self.url), sqs_client(self.url)
        self.queue_url = create_bucket_with_queue(self.url, self.bucket, self.queue, f"{PREFIX}/{THERE}/")
        self._set_up_bucket()
        self._set_up_queue()
        self.cluster.create(self.topic)
        for name, topic in self.own.items():
            self.cluster.create(topic, configs={"cleanup.policy": "delete"} if name == "segment-events" else COMPACT)

    def close(self) -> None:
        self.s3.close()
        self.sqs.close()

    def _set_up_bucket(self) -> None:
        where: Any = {"Bucket": self.bucket}
        self.s3.put_bucket_versioning(**where, VersioningConfiguration={"Status": "Enabled"})
        default: Any = {"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}}
        self.s3.put_bucket_encryption(**where, ServerSideEncryptionConfiguration={"Rules": [default]})
        self.public_access(blocked=True)
        self.lifecycle()

    def public_access(self, *, blocked: bool) -> None:
        names = ("BlockPublicAcls", "IgnorePublicAcls", "BlockPublicPolicy", "RestrictPublicBuckets")
        block: Any = dict.fromkeys(names, blocked)
        self.s3.put_public_access_block(Bucket=self.bucket, PublicAccessBlockConfiguration=block)

    def lifecycle(self, *more: Any) -> None:
        kept: list[Any] = [
            {"ID": "uploads", "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 7}},
            {"ID": "versions", "NoncurrentVersionExpiration": {"NoncurrentDays": 30}},
        ]
        rules: Any = [{"Status": "Enabled", "Filter": {"Prefix": f"{PREFIX}/"}, **one} for one in [*kept, *more]]
        self.s3.put_bucket_lifecycle_configuration(Bucket=self.bucket, LifecycleConfiguration={"Rules": rules})

    def _set_up_queue(self) -> None:
        dead = self.sqs.create_queue(QueueName=f"{self.queue}-dead")["QueueUrl"]
        arn = f"arn:aws:sqs:us-east-1:123456789012:{self.queue}"
        self.dead_url = dead
        self.attributes(  # its policy is that of every local queue
            VisibilityTimeout="60",
            MessageRetentionPeriod="1209600",
            RedrivePolicy=json.dumps({"deadLetterTargetArn": f"{arn}-dead", "maxReceiveCount": 10}),
        )

    def attributes(self, **changed: str) -> None:
        """moto forgets a policy that is not among them."""
        found = self.sqs.get_queue_attributes(QueueUrl=self.queue_url, AttributeNames=["Policy"])
        changed = found.get("Attributes", {}) | changed
        self.sqs.set_queue_attributes(QueueUrl=self.queue_url, Attributes=changed)  # type: ignore[arg-type]

    def notify(self, *events: str, prefix: str = f"{PREFIX}/{THERE}/", suffix: str = "") -> None:
        rules = [{"Name": "prefix", "Value": prefix}, *([{"Name": "suffix", "Value": suffix}] if suffix else [])]
        one = {
            "QueueArn": f"arn:aws:sqs:us-east-1:123456789012:{self.queue}",
            "Events": list(events),
            "Filter": {"Key": {"FilterRules": rules}},
        }
        wanted: Any = {"QueueConfigurations": [one]} if events else {}
        self.s3.put_bucket_notification_configuration(Bucket=self.bucket, NotificationConfiguration=wanted)

    def tables(self, **kafka: str) -> dict[str, Any]:
        aws = {
            "endpoint_url": self.url,
            "region_name": "us-east-1",
            "access_key_id": "test",
            "secret_access_key": "${SECRET}",
        }
        return {
            "region": HERE,
            "kafka": {**self.cluster.properties, "log_level": "0", **kafka},
            "s3": {"bucket": self.bucket, **aws},
            "egress": {"group_id": self.groups["egress"], "topics": {self.topic: {}}},
            "sqs": {"queue": self.queue, "wait": "1s", **aws},
            "ingress": {
                "group_id": self.groups["ingress"],
                "segment_events_topic": self.own["segment-events"],
                "checkpoint_topic": self.own["checkpoint"],
                "offset_map_topic": self.own["offset-map"],
                "ledger_topic": self.own["ledger"],
                "sources": [{"region": THERE, "topic": self.topic, "destination_topic": "copy.{topic}"}],
            },
        }

    def config(self, **kafka: str) -> Config:
        tables = self.tables(**kafka)
        tables["s3"] |= {"secret_access_key": "test"}
        tables["sqs"] |= {"secret_access_key": "test"}
        return from_mapping(tables)

    def examined(self, config: Config | None = None, *, writes: bool = True) -> Sequence[Diagnosis]:
        found = config or self.config()
        pool = ThreadPoolExecutor(8)
        try:
            with ExitStack() as opened:
                facts = gather(found, roles_of(found), pool, SystemClock(), opened, writes=writes, probe_wait=SOON)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
        return examine(CHECKS, facts)

    def arrived(self) -> Sequence[str]:
        """Where the probes did."""
        config, pool = self.config(), ThreadPoolExecutor(8)
        try:
            with ExitStack() as opened:
                facts = gather(config, roles_of(config), pool, SystemClock(), opened, probe_wait=SOON)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
        return [] if isinstance(facts.probes, Unread) else [one.arrived_at for one in facts.probes]

    def why(self, name: str) -> str:
        """The reason of what was not checked."""
        (found,) = [one for one in self.examined() if one.name == name]
        assert found.severity is Severity.UNKNOWN
        return found.why

    def names(self, config: Config | None = None, *, writes: bool = True) -> Mapping[str, str]:
        """Severity of each that is not well. That these credentials, which may do everything, may delete is left
        out."""
        found = self.examined(config, writes=writes)
        assert {one.name for one in found if one.name == "bucket-right-needless"} == (
            {"bucket-right-needless"} if writes else set()
        )
        return {
            one.name: one.severity.value
            for one in found
            if one.severity is not Severity.OK and one.name != "bucket-right-needless"
        }


@pytest.fixture
def ward(stack: LocalStack, unique: Callable[[str], str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Ward]:
    monkeypatch.setenv("SECRET", "test")
    made = Ward(stack, unique)
    yield made
    made.close()


def test_where_all_is_well_nothing_is_found_and_nothing_is_left(ward: Ward) -> None:
    assert ward.names() == {}
    keys = [one["Key"] for one in ward.s3.list_objects_v2(Bucket=ward.bucket).get("Contents", [])]
    assert keys == [f"{PREFIX}/{HERE}/_control/v1/probe"]
    assert "Uploads" not in ward.s3.list_multipart_uploads(Bucket=ward.bucket)


def test_what_is_planted_in_bucket_and_queue_is_found(ward: Ward) -> None:
    """All at the same time: none hides another."""
    ward.lifecycle({"ID": "tidy", "Expiration": {"Days": 30}})
    ward.public_access(blocked=False)
    ward.s3.put_bucket_versioning(Bucket=ward.bucket, VersioningConfiguration={"Status": "Suspended"})
    ward.attributes(Policy="", VisibilityTimeout="5", MessageRetentionPeriod="3600")
    ward.sqs.send_message(QueueUrl=ward.dead_url, MessageBody="not understood")
    ward.notify("s3:ObjectCreated:Put", suffix=".parquet")
    assert ward.names(writes=False) == {
        "bucket-expires-segments": "error",
        "bucket-may-be-public": "warning",
        "bucket-not-versioned": "warning",
        "queue-refuses-bucket": "error",
        "queue-visibility-short": "warning",
        "queue-retention-short": "warning",
        "queue-has-dead-letters": "warning",
        "notification-of-a-part": "error",
        "notification-probe": "unknown",
        "bucket-rights": "unknown",
        "bucket-conditional-writes": "unknown",
        "transactions": "unknown",
    }
    rule: Any = {
        "ID": "uploads",
        "Status": "Enabled",
        "Filter": {"Prefix": "data/"},
        "Expiration": {"Date": "2030-01-01"},
    }
    ward.s3.put_bucket_lifecycle_configuration(Bucket=ward.bucket, LifecycleConfiguration={"Rules": [rule]})
    ward.s3.put_bucket_versioning(Bucket=ward.bucket, VersioningConfiguration={"Status": "Enabled"})
    names = ward.names(writes=False)
    assert {"bucket-expires-segments", "bucket-keeps-uploads", "bucket-keeps-versions"} <= set(names)


@pytest.mark.long
def test_a_notification_that_goes_nowhere_is_found_by_the_configuration_and_by_the_probe(ward: Ward) -> None:
    ward.notify()
    assert ward.names() == {"notification-missing": "error", "notification-probe-lost": "error"}


@pytest.mark.long
def test_what_lies_in_the_queue_stays_there(ward: Ward) -> None:
    """And no message is received so often that it moves to the dead-letter queue."""
    ward.s3.put_object(Bucket=ward.bucket, Key=f"{PREFIX}/{THERE}/t/0/0/1-2", Body=b"x")
    assert ward.names() == {}
    ward.attributes(RedrivePolicy="", VisibilityTimeout="0")
    bodies = [one["Body"] for one in ward.sqs.receive_message(QueueUrl=ward.queue_url).get("Messages", [])]
    assert any("/t/0/0/1-2" in body for body in bodies) or wait_until(
        lambda: "Messages" in ward.sqs.receive_message(QueueUrl=ward.queue_url), timedelta(seconds=10)
    )


@pytest.mark.long
def test_an_absent_bucket_and_an_absent_queue(ward: Ward) -> None:
    config = ward.config()
    assert config.sqs is not None
    gone = replace(config, s3=replace(config.s3, bucket="no-such"), sqs=replace(config.sqs, queue="no-such"))
    found = ward.examined(gone)
    errors = {one.name for one in found if one.severity is Severity.ERROR}
    assert errors == {"bucket-unreachable", "queue-unreachable"}
    assert {one.severity for one in found if one.name.startswith(("cluster", "own-topics"))} == {Severity.OK}


@pytest.mark.long
def test_an_ingress_that_runs_answers_and_nothing_is_left(ward: Ward) -> None:
    with running_services() as start:
        start(build_ingress(ward.config()))
        assert wait_until(lambda: ward.arrived() == ["ingress"], timedelta(seconds=90))
    keys = [one["Key"] for one in ward.s3.list_objects_v2(Bucket=ward.bucket).get("Contents", [])]
    assert [key for key in keys if "/doctor/" in key] == []


@pytest.mark.long
def test_a_queue_is_not_searched_where_that_could_harm(ward: Ward) -> None:
    entries: Any = [{"Id": str(n), "MessageBody": "{}"} for n in range(10)]
    redrive = {"deadLetterTargetArn": f"arn:aws:sqs:us-east-1:123456789012:{ward.queue}-dead", "maxReceiveCount": 2}
    ward.attributes(RedrivePolicy=json.dumps(redrive), Policy="")
    for _ in range(3):
        ward.sqs.send_message_batch(QueueUrl=ward.queue_url, Entries=entries)
    assert "received so often" in ward.why("notification-probe")
    for _ in range(8):
        ward.sqs.send_message_batch(QueueUrl=ward.queue_url, Entries=entries)
    assert "messages wait in the queue" in ward.why("notification-probe")


@pytest.mark.long
class TestCluster:
    def test_topics_of_ours(self, ward: Ward, unique: Callable[[str], str]) -> None:
        ward.own |= {"checkpoint": unique("wrong"), "ledger": unique("new")}
        ward.cluster.create(ward.own["checkpoint"], 2, {"unclean.leader.election.enable": "true"})
        assert ward.names(writes=False) == {
            "own-topic-cleanup-policy": "error",
            "own-topic-partitions": "warning",
            "own-topic-unclean-election": "warning",
            **UNASKED,
        }

    def test_rights_of_a_principal(self, stack: LocalStack, ward: Ward, unique: Callable[[str], str]) -> None:
        principal = Principal(stack.brokers["b"], unique("weak"))
        own = [*ward.own.values(), ward.topic]
        for topic in own:
            principal.allow(TOPIC, topic, READ, WRITE, DESCRIBE_CONFIGS)
        principal.allow(TOPIC, f"copy.{ward.topic}", DESCRIBE)  # which does not exist yet
        principal.forbid(TOPIC, ward.own["checkpoint"], WRITE)
        principal.allow(GROUP, ward.groups["egress"], READ)
        principal.allow(GROUP, ward.groups["ingress"], DESCRIBE)
        weak = ward.config(**principal.properties)
        found = [one for one in ward.examined(weak) if one.severity is not Severity.OK]
        lacks = {(one.where, one.what) for one in found if one.name == "cluster-right-missing"}
        assert lacks == {
            (f"topic {ward.own['checkpoint']}", "role ingress lacks WRITE"),
            (f"group {ward.groups['ingress']}", "role ingress lacks READ"),
        }
        assert {"transactions-refused", "cluster-version", "cluster-limits"} <= {one.name for one in found}
        (limits,) = [one for one in found if one.name == "cluster-limits"]
        assert limits.severity is Severity.UNKNOWN
        assert "DESCRIBE_CONFIGS on the cluster" in limits.why

    def test_a_transaction_that_is_too_long_for_the_brokers(self, ward: Ward) -> None:
        config = ward.config()
        assert config.ingress is not None
        slow = replace(config, ingress=replace(config.ingress, transaction_timeout=timedelta(hours=1)))
        names = ward.names(slow)
        assert names == {"transaction-timeout-refused": "error", "transactions-refused": "error"}

    def test_no_broker_hides_nothing_else(self, ward: Ward) -> None:
        ward.lifecycle({"ID": "tidy", "Expiration": {"Days": 30}})
        names = ward.names(ward.config(**{"bootstrap.servers": "127.0.0.1:1"}))
        assert names["cluster-unreachable"] == "error"
        assert names["bucket-expires-segments"] == "error"
        unknown = {name for name, severity in names.items() if severity == "unknown"}
        assert {"cluster-version", "cluster-rights", "own-topics", "notification-probe"} <= unknown

    def test_tls_on_a_plaintext_listener_says_so(self, ward: Ward) -> None:
        found = ward.examined(ward.config(**{"security.protocol": "SSL"}), writes=False)
        (unreachable,) = [one for one in found if one.name == "cluster-unreachable"]
        assert "security.protocol" in unreachable.what


UNASKED = dict.fromkeys(("notification-probe", "bucket-rights", "bucket-conditional-writes", "transactions"), "unknown")


@pytest.mark.long
class TestCommand:
    def run(self, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
        with pytest.raises(SystemExit) as caught:
            main.main(["doctor", *arguments])
        return int(caught.value.code or 0), capsys.readouterr().out

    def test_exit_codes_and_output(self, ward: Ward, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        file = tmp_path / "b.toml"
        file.write_text(to_toml(ward.tables()))
        deadline = Deadline(timedelta(seconds=60))
        code, out = self.run(capsys, str(file))
        assert not deadline.expired
        assert code == 0, out
        assert "0 errors" in out
        assert "bucket-right-needless" in out
        code, out = self.run(capsys, "--read-only", "--json", str(file))
        assert code == 1
        found = json.loads(out)
        assert {one["severity"] for one in found} == {"ok", "unknown"}
        assert set(found[0]) == {"about", "severity", "name", "where", "what", "why", "remedy"}
        ward.lifecycle({"ID": "tidy", "Expiration": {"Days": 30}})
        code, out = self.run(capsys, "--all", "--role", "ingress", str(file))
        assert code == 3
        assert "  error    bucket" in out
        assert "do:  remove the expiration" in out
        assert "  ok       cluster" in out

    def test_files_that_are_wrong_or_contradict_each_other_hide_nothing(
        self, ward: Ward, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        files = [tmp_path / "b.toml", tmp_path / "wrong.toml", tmp_path / "c.toml"]
        tables = ward.tables()
        files[0].write_text(to_toml(tables))
        files[1].write_text("region = 5\n")
        other = {**tables, "ingress": {**tables["ingress"], "group_id": "another"}, "region": "c"}
        files[2].write_text(to_toml(other))
        code, out = self.run(capsys, "--read-only", *map(str, files))
        assert code == 3
        assert "[config-invalid]" in out
        assert "[config-contradiction]" in out
        assert f"{files[0]}, region b" in out
        assert f"{files[2]}, region c" in out

    def test_an_unknown_role(self, capsys: pytest.CaptureFixture[str]) -> None:
        code, _ = self.run(capsys, "--role", "nurse")
        assert code == 2
