"""`replicator restore` and `replicator verify` as users run them, on a real cluster."""

from __future__ import annotations

import io
import json
import shlex
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from formats.parquet.writer import ParquetFormat
from formats.segment import OffsetRange, Segment, SourcePartition, format_key
from infra.archive.segments import SegmentStore
from infra.contracts.storage import ObjectStore
from tests.formats.sample_records import ORIGIN, Row, batch_of
from tests.replicator.restore.history import REGION, Archive, Choice, History, Stored
from tests.replicator.restore.place import Commands, Place, expected

pytestmark = pytest.mark.integration

LEVEL_0 = [Stored(OffsetRange(start, start + 14), 0) for start in range(0, 60, 15)]
MERGED = Stored(OffsetRange(0, 29), 1)
WHOLE = Archive([History(p, "", [*LEVEL_0, MERGED], [], {3, 17}) for p in range(2)], has_second_life=False)
ALL = Choice().answer(WHOLE)


def damage(place: Place, topic: str, partition: int, stored: Stored) -> str:
    """Flip one bit in the middle of an object. Returns the name of its segment."""
    segment = Segment(WHOLE.histories[partition].source(topic), stored.level, stored.offsets)
    key = format_key("data", segment)
    body = bytearray(place.client.get_object(Bucket=place.bucket, Key=key)["Body"].read())
    body[len(body) // 3] ^= 4
    place.client.put_object(Bucket=place.bucket, Key=key, Body=bytes(body))
    return str(segment)


def test_planned_restored_and_proven(place: Place, commands: Commands) -> None:
    WHOLE.write(place.objects, "orders")
    name = place.unique("restored")
    arguments = ["restore", "orders", "--rename", f"orders={name}"]

    code, plan = commands.json(*arguments, "--dry-run")
    assert code == 0
    assert (plan["objects"], plan["refused"], plan["topics"][0]["created"]) == (6, False, True)
    assert [p["offsets"] for p in plan["topics"][0]["partitions"]] == [[0, 59], [0, 59]]
    code, text = commands.run(*arguments, "--dry-run")
    assert "nothing was written" in text
    assert name not in place.cluster.topics()

    code, text = commands.run(*arguments)
    assert (code, "116_records" in text or "116 records" in text) == (0, True), text
    for partition, rows in ALL.items():
        assert place.restored(name, partition) == expected(rows)

    code, again = commands.json(*arguments)
    assert (code, again["records"]) == (0, 0), "a second time there is nothing left to do"
    assert place.restored(name, 0) == expected(ALL[0])

    code, text = commands.run("verify", "orders", "--rename", f"orders={name}", "--target", str(place.file))
    assert (code, text.count("ok  ")) == (0, 4), text


@pytest.mark.long
def test_on_spark(place: Place, commands: Commands) -> None:
    WHOLE.write(place.objects, "orders")
    bad = damage(place, "orders", 1, LEVEL_0[3])
    name = place.unique("restored")
    code, result = commands.json("restore", "orders", "--rename", f"orders={name}", "--spark")
    assert (code, [p["state"] for p in result["partitions"]]) == (3, ["done", "failed"])
    assert place.restored(name, 0) == expected(ALL[0])
    code, text = commands.run("restore", "orders", "--rename", f"orders={name}")
    assert (code, "foreign-data" in text) == (1, True), "begun in one way, it is not gone on with in the other"
    code, text = commands.run("verify", "orders", "--rename", f"orders={name}", "--target", str(place.file), "--spark")
    assert (code, bad in text, text.count("ok  ")) == (3, True, 2), text


def test_without_java_a_restore_on_spark_creates_nothing(
    place: Place, commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    WHOLE.write(place.objects, "orders")
    before = place.cluster.topics()
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    code, _ = commands.run("restore", "orders", "--rename", f"orders={place.unique('restored')}", "--spark")
    assert (code, "JAVA_HOME is /nowhere" in commands.err) == (1, True), commands.err
    assert place.cluster.topics() == before


def test_conflicts_are_reported_before_the_first_record(place: Place, commands: Commands) -> None:
    WHOLE.write(place.objects, "orders")
    name = place.unique("taken")
    place.cluster.create(name, 1, {"retention.ms": "3600000"})
    place.cluster.put(name, b"k", b"somebody else's")
    code, plan = commands.json("restore", "orders", "--rename", f"orders={name}", "--dry-run")
    assert (code, plan["refused"]) == (3, True)
    kinds = {o["what"] for o in plan["topics"][0]["objections"]}
    assert kinds == {"foreign-data", "fewer-partitions", "retention"}
    assert commands.run("restore", "orders", "--rename", f"orders={name}")[0] == 1
    assert [(commands.out + commands.err).count(f"  {what}: ") for what in sorted(kinds)] == [1, 1, 1]
    code, plan = commands.json("restore", "orders", "--rename", f"orders={name}")
    assert (code, {o["what"] for o in plan["topics"][0]["objections"]}) == (1, kinds)
    assert "foreign-data" not in commands.err
    assert len(place.restored(name, 0)) == 1

    code, _ = commands.run("restore", "unknown", "nothing.of.it")
    assert code == 2


@pytest.mark.long
@pytest.mark.guard
def test_an_accepted_loss_is_remembered(place: Place, commands: Commands) -> None:
    WHOLE.write(place.objects, "orders")
    gone = [Segment(WHOLE.histories[0].source("orders"), s.level, s.offsets) for s in (LEVEL_0[2],)]
    place.objects.delete_many([format_key("data", segment) for segment in gone])
    name = place.unique("restored")
    arguments = ["restore", "orders", "--rename", f"orders={name}", "--accept", "missing"]
    code, result = commands.json(*arguments)
    assert (code, [p["missing"] for p in by_source(result)]) == (3, [[[30, 44]], []])
    code, result = commands.json(*arguments)
    assert (code, [p["given_up"] for p in by_source(result)]) == (3, [[[30, 44]], []]), "as long as it is asked"

    WHOLE.histories[0].write(place.objects, "orders", only=[LEVEL_0[2]])  # stored again
    code, plan = commands.json(*arguments, "--dry-run")
    assert (code, plan["topics"][0]["partitions"][0]["missing"]) == (0, [])
    code, text = commands.run(*arguments)
    assert code == 3
    assert f"accepted as missing by an earlier run, and not in {name}/0: a/orders/0 [30,44]" in text
    code, result = commands.json(*arguments)
    [again] = by_source(result)[0]["redelivery"]
    assert (code, by_source(result)[0]["state"], again in text) == (3, "done", True)

    without = [row for row in ALL[0] if not 30 <= row["offset"] <= 44]
    assert place.restored(name, 0) == expected(without)
    assert commands.run(*shlex.split(again)[1:])[0] == 0
    assert place.restored(name, 0) == [*expected(without), *expected([r for r in ALL[0] if 30 <= r["offset"] <= 44])]


def by_source(result: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return sorted(result["partitions"], key=lambda p: str(p["source"]))


@pytest.mark.parametrize("selection", [["--offsets", "100-"], ["--from", "2031-01-01T00:00:00Z"]])
def test_a_selection_without_a_record_creates_nothing(place: Place, commands: Commands, selection: list[str]) -> None:
    WHOLE.write(place.objects, "orders")
    name = place.unique("empty")
    for more in ([], ["--dry-run"]):
        code, _ = commands.run("restore", "orders", "--rename", f"orders={name}", *selection, *more)
        assert (code, "no stored record" in commands.err) == (2, True), commands.err
    code, plan = commands.json("restore", "orders", "--rename", f"orders={name}", *selection, "--dry-run")
    assert (code, plan["empty"]) == (2, True)
    assert not [topic for topic in place.cluster.topics() if name in topic or plan["id"] in topic]


def test_a_compacted_destination_takes_no_record_without_a_key(place: Place, commands: Commands) -> None:
    WHOLE.write(place.objects, "orders")
    assert any(row["key"] is None for row in ALL[0])
    there, absent = place.unique("compacted"), place.unique("absent")
    place.cluster.create(there, 2, {"cleanup.policy": "compact", "retention.ms": "-1"})
    for name, more in ((there, []), (absent, ["--topic-config", "cleanup.policy=compact"])):
        arguments = ["restore", "orders", "--rename", f"orders={name}", "--accept", "compacted", *more]
        code, plan = commands.json(*arguments, "--accept", "timestamps")
        assert (code, [o["what"] for o in plan["topics"][0]["objections"] if not o["accepted"]]) == (1, ["keyless"])
    assert absent not in place.cluster.topics()
    keyed = ["restore", "orders", "--rename", f"orders={absent}", "--topic-config", "cleanup.policy=compact"]
    keyed += ["--topic-config", "min.cleanable.dirty.ratio=1"]  # never: some keys are there twice
    code, _ = commands.run(*keyed, "--accept", "compacted", "--map", "tests.replicator.restore.keyed:by_offset")
    assert code == 0, commands.err
    assert len(place.restored(absent, 0)) == len(ALL[0])


def test_a_destination_that_egress_selects_is_warned_of(place: Place, commands: Commands) -> None:
    WHOLE.write(place.objects, "orders")
    name = place.unique("restored")
    place.more = {"egress": {"topics": {f"^{name[:-3]}.*": {}}}}
    code, text = commands.run("restore", "orders", "--rename", f"orders={name}", "--dry-run")
    assert (code, f"warning: [egress] of this file selects {name} by the expression" in text) == (0, True), text
    code, plan = commands.json("restore", "orders", "--rename", "orders=another.name", "--dry-run")
    assert (code, plan["warnings"]) == (0, [])


def test_damage_is_named_and_stops_one_partition_only(place: Place, commands: Commands) -> None:
    WHOLE.write(place.objects, "orders")
    bad = damage(place, "orders", 1, LEVEL_0[3])
    name = place.unique("restored")
    code, result = commands.json("restore", "orders", "--rename", f"orders={name}")
    assert code == 3
    states = {p["target"]: (p["state"], bool(p["corrupt"])) for p in result["partitions"]}
    assert states == {f"{name}/0": ("done", False), f"{name}/1": ("failed", True)}
    assert place.restored(name, 0) == expected(ALL[0])
    assert place.restored(name, 1) == expected([row for row in ALL[1] if row["offset"] < 45])

    code, text = commands.run("verify", "orders")
    assert (code, bad in text) == (3, True), text

    # once the object is repaired, the same command resumes
    place.client.delete_object(Bucket=place.bucket, Key=f"data/{bad}")
    Archive([History(1, "", [LEVEL_0[3]], [], {3, 17})], has_second_life=False).histories[0].write(
        place.objects, "orders"
    )
    code, result = commands.json("restore", "orders", "--rename", f"orders={name}")
    assert (code, result["records"]) == (0, 15)
    assert place.restored(name, 1) == expected(ALL[1])


def test_a_merged_segment_replaces_a_damaged_one(place: Place, commands: Commands) -> None:
    WHOLE.write(place.objects, "orders")
    damage(place, "orders", 0, MERGED)
    name = place.unique("restored")
    code, result = commands.json("restore", "orders", "--rename", f"orders={name}")
    assert (code, result["partitions"][0]["state"], len(result["partitions"][0]["corrupt"])) == (3, "done", 1)
    assert place.restored(name, 0) == expected(ALL[0])


def test_a_report_that_was_changed_is_noticed(
    place: Place, commands: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    WHOLE.write(place.objects, "orders")
    monkeypatch.setenv("REPLICATOR_REPORT_KEY", "a key")
    file, state = tmp_path / "report.json", tmp_path / "state.json"
    code, text = commands.run("verify", "orders", "--report", str(file), "--state", str(state))
    assert (code, "10 read" in text or "5 read, 0 proven before" in text) == (0, True), text
    assert commands.run("verify", "--check-report", str(file))[0] == 0
    code, text = commands.run("verify", "orders", "--state", str(state))
    assert (code, text.count("0 read, 5 proven before")) == (0, 2), text
    code, text = commands.run("verify", "orders", "--state", str(state), "--read-again", "0s")
    assert (code, text.count("5 read, 0 proven before")) == (0, 2), text

    report = json.loads(file.read_text(encoding="utf-8"))
    report["entries"][0]["records_read"] += 1
    file.write_text(json.dumps(report), encoding="utf-8")
    assert commands.run("verify", "--check-report", str(file))[0] == 1
    monkeypatch.setenv("REPLICATOR_REPORT_KEY", "another key")
    report["entries"][0]["records_read"] -= 1
    file.write_text(json.dumps(report), encoding="utf-8")
    assert commands.run("verify", "--check-report", str(file))[0] == 1


def test_differences_are_reported_by_record(place: Place, commands: Commands) -> None:
    """Compared with the archived topic, and with a copy in which one record differs."""
    WHOLE.write(place.objects, "orders")
    name = place.unique("copy")
    assert commands.run("restore", "orders", "--rename", f"orders={name}", "--offsets", "-39")[0] == 0
    with place.cluster.producer() as producer:
        producer.produce(name, b"another", b"key", 0)
    code, report = commands.json(
        "verify", "orders", "--no-archive", "--rename", f"orders={name}", "--target", str(place.file)
    )
    assert code == 3
    first, second = report["entries"]
    assert (first["records"], "offset 40" in first["difference"]) == (38, True), first
    assert "ends where the first goes on at offset 40" in second["difference"]


ABORTED = 10  # an offset that the source's consumers never see


def test_the_archive_compared_with_its_source(place: Place, commands: Commands) -> None:
    """A record that only one side has, in each direction; offsets without a record count for neither."""
    topic = place.unique("orders")
    place.cluster.create(topic, configs={"retention.ms": "-1"})
    rows: list[Row] = []
    with place.cluster.producer(**{"transactional.id": topic}) as producer:
        producer.init_transactions()
        for commits, count in ((True, ABORTED - 1), (False, 1), (True, 5)):  # and a marker behind each
            producer.begin_transaction()
            for _ in range(count):
                at = len(rows)
                producer.produce(topic, b"v", b"%d" % at, 0, timestamp=1_700_000_000_000 + at)
                rows.append(source_row(at))
            producer.flush()
            (producer.commit_transaction if commits else producer.abort_transaction)()
            rows.append(source_row(len(rows)))
    end = len(rows) - 1
    markers = (ABORTED - 1, ABORTED, ABORTED + 1, end)
    committed = [row for row in rows if row["offset"] not in markers]

    def compared(archived: list[Row]) -> tuple[int, Mapping[str, object]]:
        other = Place(place.stack, place.unique, place.folder)
        with closing(other):
            write_segment(other.objects, topic, OffsetRange(0, end), archived)
            code, report = Commands(other, commands.capsys).json(
                "verify", topic, "--no-archive", "--source", str(place.file)
            )
        [entry] = report["entries"]
        return code, entry

    code, entry = compared(committed)
    assert (code, entry["equal"], entry["records"]) == (0, True, len(committed)), entry
    code, entry = compared(committed[1:])
    assert (code, entry["only_in_source"], entry["only_in_archive"]) == (3, 1, 0), entry
    more = sorted([*committed, rows[ABORTED]], key=lambda row: row["offset"])
    code, entry = compared(more)
    assert (code, entry["only_in_source"], entry["only_in_archive"]) == (3, 0, 1), entry
    code, entry = compared([{**row, "key": b"another"} if row["offset"] == 12 else row for row in committed])
    assert (code, entry["differs_at"], entry["differs_in"]) == (3, 12, "key"), entry
    place.cluster.alter(topic, {"cleanup.policy": "compact"})
    assert compared(more)[0] == 0, "a compacted topic may hold fewer"
    assert compared(committed[1:])[0] == 3, "the archive never"


def source_row(offset: int) -> Row:
    return {
        "offset": offset,
        "timestamp": 1_700_000_000_000 + offset,
        "timestamp_type": 0,
        "key": b"%d" % offset,  # unique keys: compaction removes none meanwhile
        "value": b"v",
        "headers": None,
    }


def write_segment(objects: ObjectStore, topic: str, offsets: OffsetRange, rows: list[Row]) -> None:
    name, body = Segment(SourcePartition(REGION, topic, 0), 0, offsets), io.BytesIO()
    writer = ParquetFormat().create(body)
    writer.write([batch_of(rows)])
    writer.close(name, ORIGIN)
    SegmentStore(objects, "data").store(name, body, body.tell())


@pytest.mark.long
def test_a_topic_compared_with_its_copy_without_the_archive(place: Place, commands: Commands) -> None:
    topic, copy = place.unique("orders"), place.unique("copy")
    WHOLE.write(place.objects, topic)
    assert commands.run("restore", topic)[0] == 0
    assert commands.run("restore", topic, "--rename", f"{topic}={copy}")[0] == 0
    both = ["--source", str(place.file), "--target", str(place.file), "--no-archive", "--direct"]
    code, report = commands.json("verify", topic, "--rename", f"{topic}={copy}", *both)
    assert (code, report["equal"]) == (0, True)
    assert [e["records"] for e in report["entries"] if e["kind"] == "direct"] == [58, 58]
    with place.cluster.producer() as producer:
        producer.produce(copy, b"another", b"key", 1)
    code, report = commands.json("verify", topic, "--rename", f"{topic}={copy}", *both)
    assert (code, [e["equal"] for e in report["entries"] if e["kind"] == "direct"]) == (3, [True, False])
    assert "the second goes on" in report["entries"][-1]["difference"]
    assert commands.run("verify", topic, "--direct")[0] == 2
    assert commands.run("verify", "--check-report", str(place.folder / "none"))[0] == 2
    assert commands.run("restore", topic, "--offsets", "9-1")[0] == 2
    code, result = commands.json("restore", topic, "--rename", f"{topic}={place.unique('part')}", "--offsets", "-9")
    assert (code, {p["next_offset"] for p in result["partitions"]}) == (0, {10})


def test_archived_objects_are_requested_first(place: Place, commands: Commands) -> None:
    WHOLE.write(place.objects, "orders")
    key = format_key("data", Segment(WHOLE.histories[0].source("orders"), 0, LEVEL_0[3].offsets))  # the newest
    place.client.copy_object(
        Bucket=place.bucket,
        Key=key,
        CopySource=f"{place.bucket}/{key}",
        StorageClass="GLACIER",
        MetadataDirective="COPY",
    )
    arguments = ["restore", "orders", "--rename", f"orders={place.unique('thawed')}"]
    code, plan = commands.json(*arguments, "--dry-run")
    assert (code, plan["topics"][0]["frozen"]) == (3, 1)
    part = ["restore", "orders", "--rename", f"orders={place.unique('part')}", "--offsets", "-39"]
    assert commands.run(*part)[0] == 0, "nothing of it is archived"
    assert "--thaw" in plan["topics"][0]["objections"][0]["why"]
    assert commands.run(*arguments)[0] == 1
    code, text = commands.run(*arguments, "--thaw")
    assert (code, "requested 1 archived objects" in text) == (3, True), text
    code, text = commands.run(*arguments)  # this server thaws at once
    assert code == 0, text
