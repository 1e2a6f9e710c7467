"""The pages of a migration, played: another program's positions and archive are there, and ours goes on at the next
record."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AdminClient

from infra.contracts.cluster import Committed, TopicPartition
from infra.local.aws import s3_client
from tests.docs.markdown import ROOT, blocks
from tests.docs.runbooks import Book
from tests.formats.ancestor_samples import FILES, REGION, TOPIC, after_its_losses, object_key, segment_of, truth
from tests.formats.messages.test_foreign_positions import ancestor
from tests.infra.cluster import Cluster
from tests.infra.kafka_groups import commit
from tests.processes import judge
from tests.processes.desk import PATIENCE, Desk, shell_environment
from tests.processes.harness import A, B, to_toml
from tests.processes.traffic import EPOCH_MS, KEEPS_EVERYTHING, Draft, create_topic, produce_all

if TYPE_CHECKING:
    from pathlib import Path

    from tests.processes.harness import Site

pytestmark = [pytest.mark.integration, pytest.mark.long]

MIRRORMAKER, GO = ROOT / "docs" / "migrate-mirrormaker.md", ROOT / "docs" / "migrate-ancestor.md"
COPIED = 60  # records of each partition that MirrorMaker 2 has copied


def test_from_mirrormaker(site: Site) -> None:
    with Desk(site, MIRRORMAKER, source={"replication_policy": "default"}) as desk:
        saved = files_of(MIRRORMAKER)
        (desk.folder / "mm2.properties").write_text(desk.book.real(saved["mm2.properties"]), encoding="utf-8")
        for written in desk.folder.glob("*.toml"):  # of the desk: there is none before the import
            written.unlink()
        desk.play("1. The configuration")
        desk.files()  # as imported, with the intervals and names of this test
        desk.produce(100)
        desk.egress.start()
        desk.wait("an archive", desk.archived)
        desk.play("2. Egress, while MirrorMaker 2 runs")
        create_topic(site.bootstrap(B), desk.flow.target, 2, KEEPS_EVERYTHING)
        copied = [
            Draft(p, b"customer-%d" % (n % 10), b"order %d" % n, (), EPOCH_MS + n)
            for p in (0, 1)
            for n in range(COPIED)
        ]
        produce_all(site.bootstrap(B), desk.flow.target, copied)
        offsets, target = f"{site.name}.mm2-offsets", Cluster(site.stack.brokers[B])
        desk.book.names["mm2-offsets.us-east-1.internal"] = offsets
        target.create(offsets)
        for partition in (0, 1):
            key = ["MirrorSourceConnector", {"cluster": "us-east-1", "partition": partition, "topic": desk.flow.topic}]
            target.put(offsets, json.dumps(key).encode(), json.dumps({"offset": COPIED - 1}).encode())
        desk.play("3. MirrorMaker 2 stops")
        desk.ingress.tables = {**desk.ingress.tables, "groups": {"adopt": True, "interval": "1s"}}
        desk.files()
        desk.ingress.start()
        desk.wait_for_delivery(200)
        desk.produce(10, first=100)
        desk.wait_for_delivery(220)
        desk.wait("watermarks", lambda: desk.lag() == 0)
        desk.play("It is over when")
        desk.flow.judge_target(rewinds=0)


def test_from_the_ancestor(site: Site) -> None:
    """Of its two ends the target had 80 of the 120 records that its egress had archived; 40 more come at the source."""
    source, copy, count = TopicPartition(TOPIC, 0), f"{site.name}.copy", len(truth())
    create_topic(site.bootstrap(A), TOPIC, 1, KEEPS_EVERYTHING)
    create_topic(site.bootstrap(B), copy, 1, KEEPS_EVERYTHING)
    drafts = [Draft(0, b"k", b"record %d" % n, (), EPOCH_MS + n) for n in range(count + 40)]
    produce_all(site.bootstrap(A), TOPIC, drafts[:count])
    client = s3_client(site.stack.moto.endpoint_url)
    for file in FILES:
        if segment_of(file).level == 0:
            client.put_object(Bucket=site.bucket, Key=object_key(file), Body=file.read_bytes())
    client.close()
    commit({"bootstrap.servers": site.bootstrap(A)}, site.egress_group, {source: Committed(count, "")})
    delivered, theirs = 80, f"{site.name}.their-checkpoints"
    produce_all(site.bootstrap(B), copy, [Draft(0, b"k", b"theirs %d" % n, (), EPOCH_MS) for n in range(delivered)])
    target = Cluster(site.stack.brokers[B])
    target.create(theirs)
    target.put(theirs, b"0", ancestor(delivered - 1, region=REGION, topic=TOPIC, partition=0))

    egress = site.egress("egress", {TOPIC: {}}, heartbeat_interval="1s", watermark_interval="1s")
    ingress = site.ingress("ingress", {"topic": TOPIC, "region": REGION, "destination_topic": copy})
    egress.tables = {**egress.tables, "region": REGION}
    book = Book(
        page=GO,
        folder=site.folder / "desk",
        environment=shell_environment(site),
        names={"us-east-1": REGION, "us.orders": copy, "orders": TOPIC, "replicator.checkpoint": theirs},
    )
    book.folder.mkdir()
    for worker, name in ((egress, REGION), (ingress, "eu-west-1")):
        (book.folder / f"{name}.toml").write_text(to_toml(worker.tables), encoding="utf-8")

    book.play("1. Its egress stops")
    egress.start()
    book.play("2. Its ingress stops")
    ingress.start()
    produce_all(site.bootstrap(A), TOPIC, drafts[count:])
    with closing(judge.Reader(site.bootstrap(B), copy, 1, isolation="read_committed")) as reader:

        def arrived() -> int:
            reader.read()
            return reader.count()

        site.wait("every record", lambda: arrived() == count + 40, PATIENCE)
    site.wait("watermarks", lambda: ingress.metrics().value("source_lag_records") == 0, PATIENCE)
    book.play("It is over when")
    assert book.left() == set()
    found = [record.value for record in judge.read_topic(site.bootstrap(B), copy, 1)[0].records]
    assert found[:delivered] == [b"theirs %d" % n for n in range(delivered)]
    assert found[delivered:count] == [after_its_losses(record)["value"] for record in truth()[delivered:]]
    assert found[count:] == [draft.value for draft in drafts[count:]]
    admin = AdminClient({"bootstrap.servers": site.bootstrap(A)})
    admin.delete_topics([TOPIC])[TOPIC].result(30)


def files_of(page: Path) -> Mapping[str, str]:
    """What a reader of the page saves."""
    mark = "file: "
    return {block.mark.removeprefix(mark): block.text for block in blocks(page) if block.mark.startswith(mark)}
