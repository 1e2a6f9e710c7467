"""Schemas restored into a registry: the same ids, whatever a crash left, and never over a schema of somebody else."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from json import loads
from typing import Any

import pytest

from egress.catalog.schema_observer import SchemaObserver
from formats.control.keys import schemas_prefix
from formats.control.schemas import Schema, SchemaReference, SchemaSnapshot, encode_schemas
from formats.errors import RegistryRefused, TargetError
from infra.archive.generations import Generations
from infra.contracts.schema_registry import READWRITE, SchemaRegistry
from infra.kafka.cluster.schema_registry import RestSchemaRegistry, schema_registry
from infra.runtime.crash_points import Step, observe
from infra.settings.schema_registry import SchemaRegistrySettings
from infra.storage.memory_and_folder import MemoryObjectStore
from replicator.schema_plan import SchemaPlan
from replicator.schemas import SchemaRestore, archived_schemas
from tests.fakes.schema_registry import FakeRegistry, serving

T0 = datetime(2026, 1, 1, tzinfo=UTC)
ORDER = '{"type":"record","name":"Order","fields":[{"name":"item","type":"string"},{"name":"count","type":"long"}]}'


def client_of(fake: FakeRegistry) -> RestSchemaRegistry:
    return RestSchemaRegistry(fake.send, "http://registry")


def snapshot_of(fake: FakeRegistry) -> SchemaSnapshot:
    return SchemaObserver(client_of(fake), "w").observe(None, T0)


def restore(source: SchemaSnapshot, fake: FakeRegistry) -> SchemaPlan:
    work = SchemaRestore(registry=client_of(fake), source=source)
    plan = work.plan(T0)
    work.run(plan)
    return plan


def source_registry() -> FakeRegistry:
    """The schema that is referred to has a higher id than the one that refers to it."""
    fake = FakeRegistry(level="FULL", levels={"orders-value": "NONE"})
    fake.add("line", "message Line {}", type="PROTOBUF", id=90)
    reference = (SchemaReference(name="line.proto", subject="line", version=1),)
    fake.add("orders-key", 'import "line.proto";', type="PROTOBUF", references=reference, id=40)
    fake.add("orders-value", '"string"', id=41)
    fake.add("orders-value", ORDER, id=77)
    fake.add("archive-value", ORDER)
    fake.hide("orders-value", 1)
    return fake


def test_a_record_of_the_source_decodes_at_the_target() -> None:
    source, target = source_registry(), FakeRegistry()
    [number] = [n for n, schema in source.schemas.items() if schema.text == ORDER]
    record = b"\x00" + struct.pack(">I", number) + b"\x0abread\x06"  # of Avro: 5 letters, and 3 as a zigzag
    with serving(target) as url:
        registry = schema_registry(SchemaRegistrySettings(url=url))
        work = SchemaRestore(registry=registry, source=snapshot_of(source))
        work.run(work.plan(T0))
        assert decoded(record, registry) == {"item": "bread", "count": 3}


def decoded(value: bytes, registry: SchemaRegistry) -> dict[str, Any]:
    """As a consumer does it: the id, the schema that the registry has for it, then Avro's binary encoding."""
    assert value[0] == 0
    (number,), at = struct.unpack(">I", value[1:5]), 5
    schema = registry.schema(number)
    assert schema is not None, f"the registry has no schema {number}"
    found: dict[str, Any] = {}
    for field in loads(schema.text)["fields"]:
        zigzag, at = value[at], at + 1  # all of these numbers are small
        length = (zigzag >> 1) ^ -(zigzag & 1)
        if field["type"] == "string":
            found[field["name"]], at = value[at : at + length].decode(), at + length
        else:
            found[field["name"]] = length
    return found


def test_everything_is_there_with_the_same_ids() -> None:
    source, target = source_registry(), FakeRegistry()
    plan = restore(snapshot_of(source), target)
    assert [one.id for one in plan.register].index(90) < [one.id for one in plan.register].index(40)
    assert snapshot_of(target).has_same_content(snapshot_of(source))
    assert not target.modes, "that of the registry, whatever it becomes"
    again = restore(snapshot_of(source), target)
    assert again.is_empty
    assert again.present == 5


class Killed(Exception):
    """The process is gone."""


@contextmanager
def killed_at(number: int) -> Iterator[list[Step]]:
    """Ended at the so-manyth time that a durable step begins or ends; gives the steps that were come to."""
    seen: list[Step] = []

    def observer(step: Step, _: str) -> None:
        seen.append(step)
        if len(seen) > number:
            raise Killed

    observe(observer)
    try:
        yield seen
    finally:
        observe(None)


def test_a_restore_that_ends_anywhere_goes_on_with_the_same_command() -> None:
    source = snapshot_of(source_registry())
    with killed_at(1_000) as steps:
        restore(source, FakeRegistry())
    assert set(steps) == {
        Step.SET_SCHEMA_MODE,
        Step.REGISTER_SCHEMA,
        Step.DELETE_SCHEMA,
        Step.SET_COMPATIBILITY,
    }
    for number in range(len(steps)):
        target = FakeRegistry()
        with killed_at(number), pytest.raises(Killed):
            restore(source, target)
        restore(source, target)
        found = snapshot_of(target)
        assert (found.versions, found.schemas) == (source.versions, source.schemas)
        assert (found.compatibility, found.subject_compatibility) == ("FULL", source.subject_compatibility)
        assert "IMPORT" not in target.modes.values()


def test_what_refers_to_another_one_is_deleted_before_it() -> None:
    source, target = FakeRegistry(), FakeRegistry()
    source.add("a-line", "message Line {}", type="PROTOBUF")
    reference = (SchemaReference(name="line.proto", subject="a-line", version=1),)
    source.add("orders", 'import "line.proto";', type="PROTOBUF", references=reference)
    source.hide("orders", 1)
    source.hide("a-line", 1)
    restore(snapshot_of(source), target)
    assert snapshot_of(target).has_same_content(snapshot_of(source))


def test_what_is_refused_leaves_no_subject_in_mode_import() -> None:
    source, target = source_registry(), FakeRegistry()
    work = SchemaRestore(registry=client_of(target), source=snapshot_of(source))
    plan = work.plan(T0)
    target.schemas[77] = Schema(text='"of others"')  # meanwhile
    with pytest.raises(RegistryRefused, match="Overwrite new schema with id 77"):
        work.run(plan)
    assert not target.modes


def test_a_schema_that_is_there_with_another_id_is_registered_first() -> None:
    """So a registry that refuses that is left as it was; another one has both ids then."""
    source, target = FakeRegistry(), FakeRegistry(has_one_id_for_a_schema=True)
    for subject, text in (("a-value", '"int"'), ("b-value", '"string"'), ("c-value", '"long"')):
        source.add(subject, text)
    target.add("local-value", '"string"', id=9)
    work = SchemaRestore(registry=client_of(target), source=snapshot_of(source))
    plan = work.plan(T0)
    assert [one.subject for one in plan.register] == ["b-value", "a-value", "c-value"]
    assert plan.left == [
        "the schema of b-value version 1 is there with id 9; with id 2 it is registered first, since some registries "
        "refuse that"
    ]
    with pytest.raises(RegistryRefused, match="already registered with id 9"):
        work.run(plan)
    assert set(target.schemas) == {9}
    target.has_one_id_for_a_schema = False
    restore(snapshot_of(source), target)
    assert set(target.schemas) == {1, 2, 3, 9}


def test_a_subject_that_an_operator_protects_stays_protected() -> None:
    source, target = source_registry(), FakeRegistry()
    restore(snapshot_of(source), target)
    target.modes["orders-value"] = "READONLY"
    source.add("orders-value", '"double"')
    source.add("archive-value", '"double"')
    source.levels["orders-value"] = "NONE"  # which a registry refuses of a subject that is READONLY
    restore(snapshot_of(source), target)
    assert target.modes == {"orders-value": "READONLY"}
    assert target.levels["orders-value"] == "NONE"


def test_a_registry_that_gives_ids_of_its_own_gets_no_further_schema() -> None:
    target = FakeRegistry(ignores_ids=True)
    with pytest.raises(RegistryRefused, match="registered with id 1, not with"):
        restore(snapshot_of(source_registry()), target)
    assert len(target.schemas) == 1
    assert not target.modes


def test_a_registry_that_keeps_the_mode_of_a_subject_is_written_to_again() -> None:
    target = FakeRegistry(keeps_modes=True)
    restore(snapshot_of(source_registry()), target)
    assert set(target.modes.values()) == {READWRITE}


def test_new_versions_follow_into_a_registry_that_has_the_earlier_ones() -> None:
    source, target = source_registry(), FakeRegistry()
    restore(snapshot_of(source), target)
    number = source.add("orders-value", '"long"')
    plan = restore(snapshot_of(source), target)
    assert [(one.subject, one.version, one.id) for one in plan.register] == [("orders-value", 3, number)]
    assert snapshot_of(target).has_same_content(snapshot_of(source))


@pytest.mark.parametrize("subject", ["orders-value", "of others"])
def test_an_id_that_is_taken_is_a_conflict_and_nothing_is_registered(subject: str) -> None:
    target = FakeRegistry()
    target.add(subject, '"of others"', id=77)
    before = snapshot_of(target)
    work = SchemaRestore(registry=client_of(target), source=snapshot_of(source_registry()))
    plan = work.plan(T0)
    assert any(f"id 77 is another schema there, of {subject}" in one for one in plan.conflicts)
    with pytest.raises(TargetError, match="id 77"):
        work.run(plan)
    assert snapshot_of(target) == before


def test_a_version_with_another_id_is_a_conflict() -> None:
    target = FakeRegistry()
    target.add("orders-value", '"string"', id=3)
    plan = SchemaRestore(registry=client_of(target), source=snapshot_of(source_registry())).plan(T0)
    assert "orders-value version 1 has id 3 there, and 41 in the archive" in plan.conflicts


def test_what_is_only_there_stays_and_is_named() -> None:
    target = FakeRegistry(level="BACKWARD", levels={"line": "FULL"})
    target.add("mine", '"mine"', id=500)
    restore(snapshot_of(source_registry()), target)
    target.add("line", "message Other {}", type="PROTOBUF", id=501)
    plan = restore(snapshot_of(source_registry()), target)
    assert target.level == "BACKWARD", "it is not this archive's alone"
    assert set(plan.left) == {
        "line version 2 is there only",
        "line has a compatibility of its own there (FULL)",
        "the registry's compatibility is BACKWARD there, and FULL in the archive; it holds schemas, so it stays",
    }


def test_a_reference_that_leads_nowhere_is_a_conflict() -> None:
    source = source_registry()
    found = snapshot_of(source)
    without = SchemaSnapshot(
        writer="w",
        observed_at=T0,
        schemas=found.schemas,
        versions=tuple(one for one in found.versions if one.subject != "line"),
    )
    plan = SchemaRestore(registry=client_of(FakeRegistry()), source=without).plan(T0)
    assert "orders-key version 1 refers to line version 1, which neither" in plan.conflicts[0]


def test_the_generation_in_force_is_the_last_that_can_be_read() -> None:
    objects = MemoryObjectStore()
    with pytest.raises(TargetError, match=r"the bucket has no schemas of a\. Egress of a writes them"):
        archived_schemas(objects, "data", "a")
    generations = Generations(objects, schemas_prefix("data", "a"))
    generations.put(1, encode_schemas(snapshot_of(source_registry())))
    generations.put(2, b"damaged")
    found = archived_schemas(objects, "data", "a")
    assert found.number == 1
    assert "the newest schemas of a cannot be read" in found.problem
