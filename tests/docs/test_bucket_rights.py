"""The table of rights names every IAM action that the code can need, and none that it cannot."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

from compaction.planner import plan_cleaning
from compaction.run import JobSelection
from formats.control.quarantine import Quarantined
from formats.incarnation import CONTROL
from formats.messages.delivery_checkpoint import CheckpointKey
from formats.messages.map_key import MapKey
from formats.parquet.writer import ParquetFormat
from formats.segment import OffsetRange, SourcePartition, format_key
from infra.archive.archive import Archive
from infra.archive.control import ControlStore
from infra.archive.offset_maps import OffsetMapCopies
from infra.archive.proofs import Proof, ProofStore
from infra.archive.segment_repair import SegmentCopy, SegmentRepair
from infra.archive.segments import SegmentStore
from infra.contracts.storage import ObjectInfo, ObjectStore
from infra.storage.memory_and_folder import MemoryObjectStore
from infra.storage.s3_errors import PERMISSIONS as S3_PERMISSIONS
from infra.storage.sqs import PERMISSIONS as SQS_PERMISSIONS
from replicator.config import RetentionRule
from replicator.rights.table import IAM, REPLICATION
from replicator.status.schemas import read_topic_schemas
from replicator.verify.verifier import Verifier
from tests.compaction.archive import Archive as CompactedArchive
from tests.compaction.archive import job, retention
from tests.docs.generate import with_rights
from tests.docs.markdown import ROOT
from tests.egress.test_sync import Bench as SyncBench
from tests.egress.test_sync import name as copied
from tests.egress.two_partitions import P
from tests.egress.two_partitions import joined as joined_egress
from tests.egress.world import World as EgressWorld
from tests.egress.world import rule
from tests.fakes.archive import archive_of
from tests.fakes.surroundings import FailingStore
from tests.formats.sample_records import sample_rows, segment
from tests.infra.archive.test_segment_repair import SOUND, WANTED
from tests.ingress.process import joined as joined_ingress
from tests.ingress.world import HERE, REGION, source_topic
from tests.ingress.world import World as IngressWorld

DAY = timedelta(days=1)
OF_STORE = {"list": "s3:ListBucket", "put_new": "s3:PutObject", "open": "s3:GetObject", "stat": "s3:GetObject"}
OF_NO_RIGHT = "GetCallerIdentity"  # AWS gives it to everyone
Action = tuple[str, str]  # kind of resource, IAM action
OF_PARTS = "s3:AbortMultipartUpload"  # below the contract of a store: of an upload in parts, and of the writers' test


def documented() -> Mapping[str, Collection[Action]]:
    """By the command; of the resource its first word."""
    found: dict[str, set[Action]] = {}
    for right in IAM:
        kind = right.on.value.partition(" ")[0]
        found.setdefault(right.who.replace("`", ""), set()).update((kind, action) for action in right.actions)
    return found


def of_store(who: str) -> Collection[Action]:
    """What can be seen at the contract of a store."""
    return {
        (kind, action)
        for kind, action in documented()[who]
        if action.startswith("s3:") and action not in (OF_PARTS, "s3:ListBucketMultipartUploads", REPLICATION)
    }


def action(operation: str, key: str) -> Action:
    if operation == "list":
        return "bucket", OF_STORE[operation]
    return "control" if f"/{CONTROL}/" in key else "segments", OF_STORE[operation]


def asked(store: FailingStore) -> set[Action]:
    return {action(operation, key) for operation, key in store.asked}


class Asked:
    """An `ObjectStore` that remembers what it was asked for."""

    def __init__(self, store: ObjectStore) -> None:
        self.store, self.found = store, set[Action]()

    def list(self, prefix: str, *, start_after: str = "", limit: int | None = None) -> Iterator[ObjectInfo]:
        self.found.add(action("list", prefix))
        return self.store.list(prefix, start_after=start_after, limit=limit)

    def folders(self, prefix: str) -> Sequence[str]:
        self.found.add(action("list", prefix))
        return self.store.folders(prefix)

    def put_new(self, key: str, body: BinaryIO, size_bytes: int) -> None:
        self.found.add(action("put_new", key))
        self.store.put_new(key, body, size_bytes)

    def open(self, key: str, *, tail_bytes: int | None = None) -> BinaryIO:
        self.found.add(action("open", key))
        return self.store.open(key, tail_bytes=tail_bytes)

    def stat(self, key: str) -> ObjectInfo | None:
        self.found |= {action("stat", key), action("list", "")}  # where there is none, the bucket is asked for
        return self.store.stat(key)

    def delete_many(self, keys: Collection[str]) -> None:
        self.found |= {(action("open", key)[0], "s3:DeleteObject") for key in keys}
        self.store.delete_many(keys)


def client_calls(file: Path) -> Iterator[str]:
    """API operations that a file calls: methods of a client that the table of botocore's names has."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        owner, name = ast.unparse(node.func.value), node.func.attr
        if not re.fullmatch(r"(self\.)?_?client", owner) or name in ("close", "meta"):
            continue
        if name == "get_paginator":
            (given,) = node.args
            name = ast.literal_eval(given)
        yield "".join(part.capitalize() for part in name.split("_"))


def test_every_call_has_its_permission() -> None:
    files = sorted((ROOT / "infra" / "storage").glob("*.py"))
    called = {name for file in files for name in client_calls(file)}
    assert called - {"ListObjectsV2", OF_NO_RIGHT} == {*S3_PERMISSIONS, *SQS_PERMISSIONS} - {"ListObjectsV2"}


def test_every_action_is_in_the_table() -> None:
    named = {action for each in documented().values() for _, action in each}
    assert named == {*S3_PERMISSIONS.values(), *SQS_PERMISSIONS.values()}


def test_no_right_is_for_another_kind_of_resource() -> None:
    kinds = {kind for each in documented().values() for kind, _ in each}
    assert kinds == {"bucket", "segments", "control", "queue", "dead-letter"}


def test_egress(tmp_path: Path) -> None:
    world = EgressWorld(tmp_path, rule("^.*"))
    world.broker.create("t", partitions=2)
    world.produce(P, 10)
    joined_egress(world).stop()
    world.broker.committed("group").clear()
    joined_egress(world).stop()
    assert asked(world.objects) == of_store("egress")


def test_ingress() -> None:
    world = IngressWorld()
    world.put(0, 9)
    world.record_begin(0)
    process = joined_ingress(world)
    world.put(20, 29)
    world.record_gap(10, 19)
    process.later(60)
    delivery = CheckpointKey(SourcePartition(REGION, "t", 0), "t.copy")
    OffsetMapCopies(world.objects, "data", HERE).put(MapKey(delivery, "id"), OffsetRange(0, 9), b"")
    assert asked(world.objects) == of_store("ingress")


def test_sync() -> None:
    with ThreadPoolExecutor(2) as pool:
        bench = SyncBench(pool)
        bench.put(copied(0), copied(10), "a/_control/v1/begins/t/0")
        for key in (copied(0), "a/_control/v1/begins/t/0"):  # another one, so that they are compared
            bench.there.memory.put_new(f"other/prefix/{key}", BytesIO(b"x" * len(key)), len(key))
        bench.put("a/_control/v1/places/t")
        bench.sync.once()
    assert asked(bench.here) == of_store("sync, where it reads")
    assert asked(bench.there) == of_store("sync, where it writes")


def small_segments() -> tuple[CompactedArchive, Asked]:
    archive = CompactedArchive(around=Asked)
    rows = sample_rows(40)
    for start in range(0, 40, 10):
        archive.write(segment(start, start + 9), rows[start : start + 10])
    assert isinstance(archive.objects, Asked)
    return archive, archive.objects


def test_compact() -> None:
    archive, store = small_segments()
    archive.lease()
    archive.lease()  # the next one removes the last one
    archive.compactor().run(job(), JobSelection())
    damaged, of_damaged = small_segments()
    damaged.memory.replace(f"data/{segment(0, 9)}", b"rubbish")
    damaged.compactor().run(job(), JobSelection())
    assert store.found | of_damaged.found == of_store("compact")


def test_gc() -> None:
    archive, store = small_segments()
    archive.time += 30 * DAY
    rules = retention({"orders": RetentionRule(max_age=DAY)}, max_delete_percent=100)
    archive.collector(rules).run(archive.lease())
    assert archive.segments() == [segment(30, 39)]
    covered, of_covered = small_segments()
    covered.write(segment(0, 39, level=1), sample_rows(40))
    covered.lease()
    covered.lease()
    replace(covered.compactor(), make_plans=plan_cleaning).run(job(), JobSelection())
    assert covered.segments() == [segment(0, 39, level=1)]
    assert store.found | of_covered.found == of_store("gc")


def test_verify() -> None:
    world = IngressWorld()
    world.put(0, 9)
    world.record_begin(0)
    store = Asked(world.objects.memory)
    stored = Archive(SegmentStore(store, "data"), ControlStore(store, "data"), world.format)
    source = SourcePartition(REGION, "t", 0)
    assert Verifier(stored=stored, clock=world.clock).archive(source, {}, read_again_after=DAY).is_whole
    for number in range(2):
        proof = Proof(at=world.clock.at + number * DAY, next_offset=10, is_whole=True)
        ProofStore(store, "data", REGION).record({source: proof}, proof.at)
    assert store.found == of_store("verify")


def test_repair_segment() -> None:
    """The copy is asked through the archive's `open` alone; where it is absent, S3 asks for the right to list."""
    here, there = Asked(MemoryObjectStore()), Asked(MemoryObjectStore())
    there.store.put_new(format_key("data", WANTED), BytesIO(SOUND), len(SOUND))
    here.store.put_new(format_key("data", WANTED), BytesIO(b"damaged"), 7)
    repair = SegmentRepair(archive=archive_of(SegmentStore(here, "data"), ParquetFormat()))
    info = here.store.stat(format_key("data", WANTED))
    assert info is not None
    found = Quarantined(stored_at=info.modified_at, reason="damaged", found_at=info.modified_at)
    repair.archive.control.quarantine.record(WANTED, found)
    other = archive_of(SegmentStore(there, "data"), ParquetFormat())
    repair.repair(WANTED, SegmentCopy(other, "other"))
    assert here.found == of_store("repair-segment")
    assert {*there.found, action("list", "")} == of_store("repair-segment, in the bucket of the copy")


def test_what_only_reads() -> None:
    world = IngressWorld()
    world.put(0, 9)
    world.publish_catalog(source_topic())
    world.publish_watermarks(10, 10)
    world.beat(1)
    world.objects.asked.clear()
    world.status()
    world.lags()
    world.planned()
    archive = Archive(SegmentStore(world.objects, "data"), ControlStore(world.objects, "data"), world.format)
    newest = list(archive.segments.list(SourcePartition(REGION, "t", 0)))
    with ThreadPoolExecutor(1) as pool:
        assert read_topic_schemas(archive, newest, {}, pool) is not None
    assert asked(world.objects) == of_store("status, plan, gaps, client lag")


def test_the_page_is_the_table() -> None:
    page = (ROOT / "docs" / "rights.md").read_text(encoding="utf-8")
    assert with_rights(page) == page, "run `make docs`"
    assert page.count("<!-- rights: ") == page.count("<!-- end of rights -->") == 4
