"""A data folder is formatted by copying one that Kafka's StorageTool formatted."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.local.data_folder import META, copy_formatted, keep_formatted, new_id

IDS = "node.id=1\ndirectory.id=MEY_WiLWtVPGsR5RtExJ3w\nversion=1\ncluster.id=c1\n"
FORMATTED = f"#\n#Mon Nov 23 10:48:44 UTC 2026\n{IDS}"


@pytest.fixture
def template(tmp_path: Path) -> Path:
    data, template = tmp_path / "formatted", tmp_path / "cache" / "kafka-4.3.1.formatted"
    data.mkdir()
    template.parent.mkdir()
    (data / META).write_text(FORMATTED)
    (data / "bootstrap.checkpoint").write_bytes(b"\0\1")
    keep_formatted(data, template)
    return template


def properties(data: Path) -> dict[str, str]:
    lines = (data / META).read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if not line.startswith("#"))


def test_only_ids_differ(template: Path, tmp_path: Path) -> None:
    made = [tmp_path / "one", tmp_path / "two"]
    for number, data in enumerate(made):
        copy_formatted(template, data, cluster_id="c2", node_id=str(7 + number))
    found = [properties(data) for data in made]
    assert {name: one["version"] for name, one in zip("ab", found, strict=True)} == {"a": "1", "b": "1"}
    assert [(one["cluster.id"], one["node.id"]) for one in found] == [("c2", "7"), ("c2", "8")]
    assert len({one["directory.id"] for one in found} | {"MEY_WiLWtVPGsR5RtExJ3w"}) == 3
    assert [(data / "bootstrap.checkpoint").read_bytes() for data in made] == [b"\0\1"] * 2


def test_a_version_without_ids_of_folders_gets_none(template: Path, tmp_path: Path) -> None:
    (template / META).write_text("node.id=1\nversion=1\ncluster.id=c1\n")
    copy_formatted(template, tmp_path / "data", cluster_id="c2", node_id="1")
    assert properties(tmp_path / "data") == {"node.id": "1", "version": "1", "cluster.id": "c2"}


def test_the_first_template_stays(template: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    keep_formatted(other, template)
    assert (template / META).read_text() == FORMATTED
    assert {path.name for path in template.parent.iterdir()} == {template.name, f"{template.name}.lock"}


def test_what_a_killed_process_left_is_no_template(template: Path, tmp_path: Path) -> None:
    left, again = template.with_name("again.partial"), template.with_name("again")
    left.mkdir()
    (left / "half").touch()
    keep_formatted(template, again)
    assert {path.name for path in again.iterdir()} == {META, "bootstrap.checkpoint"}


def test_no_id_looks_like_an_option() -> None:
    assert all(len(made) == 22 and not made.startswith("-") for made in (new_id() for _ in range(2_000)))
