"""Encryption turned on in a running installation: what was in clear and what is encrypted cross, merge and come back
as one archive, and nothing of the records is in a bucket in clear from then on."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from infra.local.aws import CREDENTIALS, REGION, create_bucket_with_queue, s3_client
from infra.storage.aws import AwsCredentials
from infra.storage.encryption_mark import MARK
from infra.storage.kms_keys import make_kms_client
from tests.integration.on_spark import source_session
from tests.processes import judge
from tests.processes.flow import RUN, Flow
from tests.processes.harness import PATIENCE, PREFIX, A, B, to_toml
from tests.processes.traffic import EPOCH_MS, Draft

if TYPE_CHECKING:
    from tests.processes.harness import Site

pytestmark = [pytest.mark.integration, pytest.mark.long]

SEED = 31
VALUE = b"a value that nothing encrypts by chance, number "
LONG = 5 * PATIENCE  # of a command that starts Spark
Encryption = dict[str, Any]


def by_file(site: Site, key_id: str) -> Encryption:
    path = site.folder / f"{key_id}.toml"
    keys = {"current": key_id, "keys": {key_id: base64.b64encode(key_id.encode().ljust(32)).decode()}}
    path.write_text(to_toml(keys), encoding="utf-8")
    return {"key": "file", "key_file": str(path)}


def by_kms(site: Site, _: str) -> Encryption:
    endpoint_url = site.stack.moto.endpoint_url
    credentials = AwsCredentials(
        access_key_id=CREDENTIALS["aws_access_key_id"], secret_access_key=CREDENTIALS["aws_secret_access_key"]
    )
    with closing(make_kms_client(REGION, endpoint_url=endpoint_url, credentials=credentials, session=None)) as kms:
        arn = kms.create_key()["KeyMetadata"]["Arn"]
    return {"key": "kms", "kms_key_id": arn, "kms_endpoint_url": endpoint_url}


def key_of(encryption: Encryption) -> str:
    return str(encryption.get("kms_key_id", Path(encryption.get("key_file", "")).stem))


def test_records_cross_while_encryption_is_turned_on(site: Site) -> None:
    """First in clear, then encrypted; `sync` has no keys, and ingress reads both."""
    endpoint, other, queue = site.stack.moto.endpoint_url, f"{site.name}-other", f"{site.name}-other-queue"
    create_bucket_with_queue(endpoint, other, queue)
    encryption = by_file(site, "ours")
    with Flow(site) as flow:
        egress = site.egress("egress", {flow.topic: {}}).start()
        sync = site.sync("sync", other).start()
        ingress = site.ingress("ingress", {"topic": flow.topic}, bucket=other, queue=queue)
        ingress.tables = {**ingress.tables, "encryption": encryption}
        ingress.start()
        with flow.traffic(seed=SEED) as traffic:
            flow.wait_for_more()
            egress.stop()
            in_clear = set(site.keys())
            egress.tables = {**egress.tables, "encryption": encryption}
            egress.start()
            flow.wait_for_more()
            words = traffic.finish()
        flow.wait_for(words)
        flow.wait_for_archive()
        site.stop(egress, ingress)
        site.wait("all copied", lambda: segments(site).items() <= segments(site, other).items())
        sync.stop()
        flow.judge_target(rewinds=0)
        flow.judge_archive()
        new, copied = set(site.keys()) - in_clear, set(site.keys(other)) - in_clear
        assert in_clear
        assert new & segments(site).keys()
        assert new - segments(site).keys(), "control objects, too"
        assert_encrypted(site, site.bucket, new, values_of(flow))
        assert_encrypted(site, other, copied, values_of(flow))


@pytest.mark.parametrize("keys", [by_file, by_kms])
def test_an_archive_in_clear_and_encrypted_is_one(site: Site, keys: Callable[[Site, str], Encryption]) -> None:
    """Merged on Spark, verified, restored, and read by the Spark source."""
    encryption = keys(site, "ours")
    with Flow(site, partitions=2) as flow:
        egress = site.egress("egress", {flow.topic: {"max_segment_messages": 100}}).start()
        flow.produce([Draft(n % 2, b"k", VALUE + b"%d" % n, (), EPOCH_MS + n) for n in range(600)])
        flow.wait_for_archive()
        egress.stop()
        in_clear = segments(site)
        egress.tables = {**egress.tables, "encryption": encryption, "created_by": "example_app"}
        egress.start()
        flow.produce([Draft(n % 2, b"k", VALUE + b"%d" % n, (), EPOCH_MS + n) for n in range(600, 1200)])
        flow.wait_for_archive()
        egress.stop()
        before = segments(site)
        assert len(in_clear) > 2
        assert len(before) > len(in_clear)

        compact = site.compaction("compact")
        compact.tables = {**compact.tables, "encryption": encryption}
        once = site.command("once", compact, "compact", "--once").start()
        assert once.wait(LONG) == 0, once.explain("compact failed")
        merged = segments(site).keys() - before.keys()
        assert merged
        assert not segments(site).keys() & before.keys(), "what was merged is deleted, in clear and encrypted"
        assert_encrypted(site, site.bucket, set(merged), values_of(flow))
        flow.judge_archive()

        kafka = {"bootstrap.servers": site.bootstrap(B)}
        reading = site.command("reading", compact, "verify", flow.topic)
        reading.tables = {"region": A, "kafka": kafka, "s3": site.s3(), "encryption": encryption}
        assert reading.start().wait(LONG) == 0, reading.explain("verify failed")
        copy = f"{flow.topic}.restored"
        code, text = reading.run("restore", flow.topic, "--rename", f"{flow.topic}={copy}")
        assert code == 0, text
        restored = judge.read_topic(site.bootstrap(B), copy, flow.partitions)
        for partition, log in flow.source().items():
            judge.judge_target(log.records, restored[partition].records, rewinds=0, run=RUN)
        assert by_spark(site, flow, reading.tables) == sum(len(log.records) for log in flow.source().values())

        wrong = keys(site, "theirs")
        for tables in ({**reading.tables, "encryption": wrong}, without(reading.tables, "encryption")):
            reading.write(tables)
            code, text = reading.run("restore", flow.topic, "--rename", f"{flow.topic}={copy}.again", "--dry-run")
            assert code != 0, text
            assert key_of(encryption) in text
            assert "[encryption]" in text or "[keys]" in text


def values_of(flow: Flow) -> list[bytes]:
    """Some of them."""
    found = [one.value for log in flow.source().values() for one in log.records if one.value and len(one.value) > 8]
    return found[:: max(len(found) // 20, 1)]


def segments(site: Site, bucket: str = "") -> dict[str, str]:
    return {key: etag for key, etag in site.keys(bucket).items() if "/_control/" not in key}


def without(tables: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in tables.items() if key != name}


def assert_encrypted(site: Site, bucket: str, keys: set[str], records: list[bytes]) -> None:
    """But for the probe of conditional writes, whose text is fixed."""
    with closing(s3_client(site.stack.moto.endpoint_url)) as s3:
        for key in keys - {f"{PREFIX}/{region}/_control/v1/probe" for region in (A, B)}:
            body = s3.get_object(Bucket=bucket, Key=key)["Body"].read()
            assert body.endswith(MARK), key
            assert not any(value in body for value in records), key


def by_spark(site: Site, flow: Flow, tables: Mapping[str, Any]) -> int:
    """Records that the Spark source reads, in Python processes of Spark's own."""
    file = site.folder / "spark.toml"
    keys = {"access_key_id": "test", "secret_access_key": "${SPARK_SECRET}"}
    changed = {"region": A, "s3": {**tables["s3"], **keys}, "encryption": tables["encryption"]}
    if tables["encryption"]["key"] == "kms":
        changed["encryption"] = {**changed["encryption"], **keys}
    file.write_text(to_toml(changed), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PYSPARK_PYTHON", raising=False)
        patch.setenv("SPARK_SECRET", "test")
        with source_session({}) as session:
            frame = session.read.format("segments").options(config=str(file), topic=flow.topic).load()
            return int(frame.count())
