"""`replicator restore` and `replicator verify` as users run them, on a real cluster."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from infra.local.stack import LocalStack
from replicator.segment import OffsetRange, Segment, format_key
from tests.restore.history import Archive, Choice, History, Stored
from tests.restore.place import Commands, Place, expected

pytestmark = pytest.mark.integration

LEVEL_0 = [Stored(OffsetRange(start, start + 14), 0) for start in range(0, 60, 15)]
MERGED = Stored(OffsetRange(0, 29), 1)
WHOLE = Archive([History(p, "", [*LEVEL_0, MERGED], [], {3, 17}) for p in range(2)], has_second_life=False)
ALL = Choice().answer(WHOLE)


@pytest.fixture
def place(stack: LocalStack, unique: Callable[[str], str], tmp_path: Path) -> Iterator[Place]:
    with closing(Place(stack, unique, tmp_path)) as found:
        yield found


@pytest.fixture
def commands(place: Place, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Commands:
    monkeypatch.setenv("SECRET", "test")
    return Commands(place, capsys)


def damage(place: Place, topic: str, partition: int, stored: Stored) -> str:
    """Flips one bit in the middle of the object. Its name."""
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


def test_what_speaks_against_it_is_said_before_the_first_record(place: Place, commands: Commands) -> None:
    WHOLE.write(place.objects, "orders")
    name = place.unique("taken")
    place.cluster.create(name, 1, {"retention.ms": "3600000"})
    place.cluster.put(name, b"k", b"somebody else's")
    code, plan = commands.json("restore", "orders", "--rename", f"orders={name}", "--dry-run")
    assert (code, plan["refused"]) == (3, True)
    said = {o["what"] for o in plan["topics"][0]["objections"]}
    assert said == {"foreign-data", "fewer-partitions", "retention"}
    assert commands.run("restore", "orders", "--rename", f"orders={name}")[0] == 1
    assert len(place.restored(name, 0)) == 1

    code, _ = commands.run("restore", "unknown", "nothing.of.it")
    assert code == 2


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

    # once the object is whole again, the same command goes on where it stood
    place.client.delete_object(Bucket=place.bucket, Key=f"data/{bad}")
    Archive([History(1, "", [LEVEL_0[3]], [], {3, 17})], has_second_life=False).histories[0].write(
        place.objects, "orders"
    )
    code, result = commands.json("restore", "orders", "--rename", f"orders={name}")
    assert (code, result["records"]) == (0, 15)
    assert place.restored(name, 1) == expected(ALL[1])


def test_a_merged_segment_saves_a_damaged_one(place: Place, commands: Commands) -> None:
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

    said = json.loads(file.read_text(encoding="utf-8"))
    said["entries"][0]["records_read"] += 1
    file.write_text(json.dumps(said), encoding="utf-8")
    assert commands.run("verify", "--check-report", str(file))[0] == 1
    monkeypatch.setenv("REPLICATOR_REPORT_KEY", "another key")
    said["entries"][0]["records_read"] -= 1
    file.write_text(json.dumps(said), encoding="utf-8")
    assert commands.run("verify", "--check-report", str(file))[0] == 1


def test_difference_to_the_record(place: Place, commands: Commands) -> None:
    """Against the topic that was archived, and against a copy in which one record is another."""
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


def test_a_topic_beside_its_copy_without_the_archive(place: Place, commands: Commands) -> None:
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


def test_archived_objects_are_asked_for_first(place: Place, commands: Commands) -> None:
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
    assert (code, "asked for 1 archived objects" in text) == (3, True), text
    code, text = commands.run(*arguments)  # this server thaws at once
    assert code == 0, text
