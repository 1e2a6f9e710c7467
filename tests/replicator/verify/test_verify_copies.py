"""`verify --target FILE`: the name of a topic in the target, and a topic that does not exist there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from formats.segment import OffsetRange, SourcePartition
from formats.topic_selection import TopicPattern
from replicator.config import from_mapping
from replicator.selection import Renaming, Selection
from replicator.verify.scope import copied_as, lineage_header_of, transform_of
from tests.processes.harness import to_toml
from tests.replicator.restore.history import Archive, History, Stored
from tests.replicator.restore.place import Commands, Place

WHOLE = Archive([History(p, "", [Stored(OffsetRange(0, 59), 0)], [], set()) for p in range(2)], has_second_life=False)
ORDERS, LATER = SourcePartition("a", "orders", 0), SourcePartition("a", "orders", 0, "a1b2c3d4e5f6g7h8i9j0kk")


def file_of(*sources: Mapping[str, Any]) -> Mapping[str, Any]:
    tables: dict[str, Any] = {"region": "b", "kafka": {"bootstrap.servers": "b:9092"}, "s3": {"bucket": "b"}}
    return tables | {"sqs": {"queue": "q"}, "ingress": {"sources": list(sources)}}


def named(*sources: Mapping[str, Any], rename: Renaming = Renaming(), source: SourcePartition = ORDERS) -> str:  # noqa: B008
    selection = Selection(region="a", topics=[TopicPattern("^.*")], renaming=rename)
    return copied_as(selection, source, from_mapping(file_of(*sources)))


MASKED = "tests.formats.records.user_transforms:masked_even"
TO_COPY = {"region": "a", "topic": "orders", "destination_topic": "copy"}


def test_the_ingress_settings_of_the_target_rename_next() -> None:
    assert named(TO_COPY) == "copy"
    assert named({"region": "a", "topic": "^or.*"}) == "orders.ingress"
    assert named({"region": "a", "topic": "^or.*"}, TO_COPY) == "copy", "a name beats an expression"
    assert named({**TO_COPY, "on_recreate": "follow"}, source=LATER) == "copy"
    assert named({**TO_COPY, "on_recreate": "new-topic"}, source=LATER) == "copy.a1b2c3d4"


def test_the_selection_renames_first() -> None:
    assert named(TO_COPY, rename=Renaming({"orders": "other"})) == "other"
    assert named(TO_COPY, rename=Renaming({}, "{topic}.restored")) == "orders.restored"
    assert named(TO_COPY, rename=Renaming({"another": "other"})) == "copy", "this one is not renamed"


def test_otherwise_the_name_is_unchanged() -> None:
    assert named({"region": "c", "topic": "orders"}) == "orders"
    no_ingress = {name: table for name, table in file_of().items() if name not in ("ingress", "sqs")}
    selection = Selection(region="a", topics=[TopicPattern("^.*")])
    assert copied_as(selection, ORDERS, from_mapping(no_ingress)) == "orders"


@pytest.mark.parametrize(
    ("source", "rename", "wanted"),
    [
        (TO_COPY | {"transform": MASKED}, Renaming(), MASKED),
        (TO_COPY, Renaming(), ""),
        ({"region": "c", "topic": "orders", "transform": MASKED}, Renaming(), ""),
        (TO_COPY | {"transform": MASKED}, Renaming({"orders": "other"}), ""),
    ],
)
def test_the_transform_is_that_of_the_source_that_delivers_the_topic(
    source: Mapping[str, Any], rename: Renaming, wanted: str
) -> None:
    selection = Selection(region="a", topics=[TopicPattern("^.*")], renaming=rename)
    assert transform_of(selection, ORDERS, from_mapping(file_of(source))) == wanted


def test_the_lineage_header_is_that_of_the_source_that_delivers_the_topic() -> None:
    selection = Selection(region="a", topics=[TopicPattern("^.*")])
    assert lineage_header_of(selection, ORDERS, from_mapping(file_of(TO_COPY | {"lineage_header": "from"}))) == "from"
    assert lineage_header_of(selection, ORDERS, from_mapping(file_of(TO_COPY))) == ""
    renamed = replace(selection, renaming=Renaming({"orders": "other"}))
    assert lineage_header_of(renamed, ORDERS, from_mapping(file_of(TO_COPY | {"lineage_header": "from"}))) == ""


# --- on a real cluster -----------------------------------------------------------------------------------------------


@pytest.mark.integration
def test_an_absent_copy_is_unequal_and_the_others_are_verified(place: Place, commands: Commands) -> None:
    topic, lost, copy = place.unique("orders"), place.unique("lost"), place.unique("copy")
    for name in (topic, lost):
        WHOLE.write(place.objects, name)
    assert commands.run("restore", topic, "--rename", f"{topic}={copy}")[0] == 0
    s3 = {**place.tables["s3"], "secret_access_key": "${SECRET}"}
    target = place.folder / "b.toml"
    sources = [{"region": "a", "topic": topic, "destination_topic": copy}, {"region": "a", "topic": lost}]
    ingress = {"sqs": {"queue": "q"}, "ingress": {"sources": sources}}
    target.write_text(to_toml({**place.tables, "region": "b", "s3": s3, **ingress}), encoding="utf-8")

    code, report = commands.json("verify", "--no-archive", "--target", str(target))
    found = {entry["source"]: entry for entry in report["entries"]}
    assert (code, len(found)) == (3, 4)
    for partition in range(2):
        good, bad = found[f"a/{topic}/{partition}"], found[f"a/{lost}/{partition}"]
        assert (good["equal"], good["records"], good["target"]) == (True, 60, f"{copy}/{partition}")
        assert (bad["equal"], bad["target"]) == (False, f"{lost}.ingress/{partition}")
        why = f"the cluster of {target} ({place.cluster.broker.bootstrap}) has no topic {lost}.ingress"
        assert bad["unreadable"].startswith(why)
        assert "--rename" in bad["unreadable"]

    code, text = commands.run("verify", topic, "--no-archive", "--target", str(target), "--rename", f"{topic}={lost}")
    assert (code, text.count("BAD ")) == (3, 2), "the option wins over the file"
    assert f"has no topic {lost}: if" in text

    code, text = commands.run("verify", topic, lost, "--no-archive", "--source", str(target))
    assert (code, text.count("BAD ")) == (3, 4), "neither is in this cluster"
    assert f"has no topic {topic}: is it the file of the region" in text
