"""`replicator schemas`: from the bucket into a registry that answers over HTTP."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from egress.catalog.schema_observer import SchemaObserver
from formats.control.keys import schemas_prefix
from formats.control.schemas import decode_schemas, encode_schemas
from infra.archive.generations import Generations
from infra.kafka.cluster.schema_registry import RestSchemaRegistry
from infra.storage.memory_and_folder import MemoryObjectStore
from replicator import main
from replicator.services.clients import Clients
from tests.fakes.schema_registry import FakeRegistry, serving

Run = Callable[..., tuple[int | str | None, str, str]]
AT = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def source() -> FakeRegistry:
    fake = FakeRegistry()
    fake.add("orders-value", '"int"', id=41)
    fake.add("orders-value", '"long"', id=77)
    fake.hide("orders-value", 1)
    return fake


@pytest.fixture
def target() -> FakeRegistry:
    return FakeRegistry()


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> MemoryObjectStore:
    """What the commands read."""
    store = MemoryObjectStore()
    monkeypatch.setattr(Clients, "objects", store)
    return store


@pytest.fixture
def run(
    store: MemoryObjectStore,
    source: FakeRegistry,
    target: FakeRegistry,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> Iterator[Run]:
    snapshot = SchemaObserver(RestSchemaRegistry(source.send, ""), "w").observe(None, AT)
    Generations(store, schemas_prefix("data", "a")).put(1, encode_schemas(snapshot))
    with serving(target) as url:
        (tmp_path / "b.toml").write_text(
            f'region = "b"\n[s3]\nbucket = "b"\n[schema_registry]\nurl = "{url}"\n', encoding="utf-8"
        )
        (tmp_path / "none.toml").write_text('region = "b"\n[s3]\nbucket = "b"\n', encoding="utf-8")

        def command(*arguments: str, file: str = "b.toml") -> tuple[int | str | None, str, str]:
            with pytest.raises(SystemExit) as ended:
                main.main(["schemas", *arguments, "--config", str(tmp_path / file)])
            text = capsys.readouterr()
            return ended.value.code, text.out, text.err

        yield command


def test_the_archived_schemas_are_shown(run: Run) -> None:
    code, out, _ = run("show", "--archive-region", "a")
    assert code == 0
    assert "generation 1, as observed at 2026-01-01T00:00:00+00:00: 1 subjects, 2 versions" in out
    assert [line.split() for line in out.splitlines()[2:]] == [
        ["orders-value", "1", "41", "AVRO", "yes"],
        ["orders-value", "2", "77", "AVRO"],
    ]
    code, out, _ = run("show", "--archive-region", "a", "--json")
    assert json.loads(out)["versions"][1] == {"subject": "orders-value", "version": 2, "id": 77, "deleted": False}
    code, _, err = run("show")
    assert code == 1
    assert "the bucket has no schemas of b" in err


def test_nothing_is_registered_before_it_is_confirmed(run: Run, target: FakeRegistry) -> None:
    code, out, _ = run("restore", "--archive-region", "a")
    assert (code, target.schemas) == (0, {})
    assert "  register orders-value version 2 with id 77" in out
    assert "nothing is registered without --yes" in out
    code, out, _ = run("restore", "--archive-region", "a", "--yes")
    assert code == 0
    assert {one.id: one.is_deleted for one in target.subjects["orders-value"].values()} == {41: True, 77: False}
    code, out, _ = run("restore", "--archive-region", "a", "--yes", "--json")
    report: dict[str, Any] = json.loads(out)
    assert (code, report["register"], report["present"], report["done"]) == (0, [], 2, True)


def test_a_conflict_registers_nothing(run: Run, target: FakeRegistry) -> None:
    target.add("mine", '"mine"', id=77)
    code, out, _ = run("restore", "--archive-region", "a", "--yes")
    assert code == 3
    assert "! id 77 is another schema there, of mine" in out
    assert set(target.subjects) == {"mine"}


def test_a_copy_that_is_not_whole_is_named_and_is_no_success(run: Run, store: MemoryObjectStore) -> None:
    snapshot = decode_schemas(store.open(f"{schemas_prefix('data', 'a')}{1:020d}").read())
    lacking = replace(snapshot, problems={"versions": "orders-value 3: the registry lists them and does not show them"})
    assert Generations(store, schemas_prefix("data", "a")).put(2, encode_schemas(lacking))
    code, out, _ = run("restore", "--archive-region", "a", "--yes", "--json")
    report: dict[str, Any] = json.loads(out)
    assert (code, report["done"], report["problems"]) == (3, True, dict(lacking.problems))
    code, _, err = run("restore", "--archive-region", "a", "--yes")
    assert (code, "not observed: versions: orders-value 3" in err) == (3, True)


def test_a_file_without_a_registry_is_a_usage_error(run: Run) -> None:
    code, _, err = run("restore", "--archive-region", "a", file="none.toml")
    assert code == 2
    assert "schema_registry: missing" in err
