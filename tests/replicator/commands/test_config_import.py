"""`replicator config import-mm2`: what is printed, and the files that are written."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from tests.replicator.test_main import Run, run

__all__ = ["run"]  # a fixture

HEAD = "clusters = a, b\na.bootstrap.servers = x:1\nb.bootstrap.servers = y:1\n"
BOTH = HEAD + "a->b.enabled = true\nb->a.enabled = true\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mm2.properties"
    path.write_text(BOTH)
    return path


def test_one_file_with_every_flow(run: Run, file: Path) -> None:
    both = run("config", "import-mm2", str(file))
    assert both.code == 0
    assert list(tomllib.loads(both.out)["flows"]) == ["a->b", "b->a"]
    one = run("config", "import-mm2", str(file), "--flow", "a->b")
    assert list(tomllib.loads(one.out)["flows"]) == ["a->b"]
    assert "enabled are: a->b, b->a" in run("config", "import-mm2", str(file), "--flow", "c->d").err


def test_what_is_refused_is_named(run: Run, file: Path) -> None:
    file.write_text(HEAD + "transforms = mask\n")
    refused = run("config", "import-mm2", str(file))
    assert refused.code == 3
    assert refused.err.count("refused: transforms = mask: a Java class cannot be loaded") == 1


def test_no_flow_at_all(run: Run, file: Path) -> None:
    file.write_text("topics = .*")
    refused = run("config", "import-mm2", str(file))
    assert (refused.code, refused.out) == (2, "")
    assert "names no flow" in refused.err


@pytest.mark.parametrize(
    ("command", "advice"),
    [
        (("import-mm2", "none"), "name a file of MirrorMaker 2"),
        (("import-mm1", "--consumer", "none", "--producer", "FILE"), "the consumer's properties with --consumer FILE"),
        (("import-mm1", "--consumer", "FILE", "--producer", "none"), "the producer's properties with --producer FILE"),
    ],
)
def test_a_file_that_is_not_there(run: Run, file: Path, command: tuple[str, ...], advice: str) -> None:
    refused = run("config", *(str(file) if word == "FILE" else word for word in command))
    assert (refused.code, refused.out) == (2, "")
    assert "replicator: none: 1 problem(s)\n  there is no such file; name" in refused.err
    assert advice in refused.err
    assert "REPLICATOR_CONFIG" not in refused.err


def test_as_json(run: Run, file: Path) -> None:
    found = json.loads(run("config", "import-mm2", str(file), "--json").out)
    assert [(one["source"], one["target"]) for one in found["flows"]] == [("a", "b"), ("b", "a")]
    assert found["flows"][0]["findings"][0] == {
        "key": "clusters",
        "value": "a, b",
        "treatment": "mapped",
        "reason": "clusters",
    }
    assert list(tomllib.loads(found["file"])["clusters"]) == ["a", "b"]


class TestOutput:
    def test_into_a_file(self, run: Run, file: Path, tmp_path: Path) -> None:
        path = tmp_path / "new" / "all.toml"
        done = run("config", "import-mm2", str(file), "--output", str(path))
        assert (done.code, done.out, done.err) == (0, "", f"replicator: wrote {path}\n")
        assert path.read_text() == run("config", "import-mm2", str(file)).out

    def test_what_it_wrote_is_sound(
        self, run: Run, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in ("A_S3_BUCKET", "A_SQS_QUEUE", "B_S3_BUCKET", "B_SQS_QUEUE"):
            monkeypatch.setenv(name, name.lower())
        run("config", "import-mm2", str(file), "--output", str(tmp_path / "all.toml"))
        run("config", "import-mm2", str(file), "--output", f"{tmp_path}/each/")
        checked = run("config", "check", str(tmp_path / "all.toml"))
        assert (checked.code, checked.out.splitlines()[-1]) == (0, "2 regions: they do not contradict each other")
        each = [str(tmp_path / "each" / name) for name in ("a.toml", "b.toml")]
        assert run("config", "check", *each).code == 0

    @pytest.mark.parametrize("sign", ["/", ""])
    def test_into_a_directory(self, run: Run, file: Path, tmp_path: Path, sign: str) -> None:
        folder = tmp_path / "files"
        if not sign:
            folder.mkdir()
        run("config", "import-mm2", str(file), "--output", f"{folder}{sign}")
        assert sorted(path.name for path in folder.iterdir()) == ["a.toml", "b.toml"]
        assert tomllib.loads((folder / "b.toml").read_text())["region"] == "b"

    def test_nothing_is_overwritten(self, run: Run, file: Path, tmp_path: Path) -> None:
        (tmp_path / "b.toml").write_text("mine")
        refused = run("config", "import-mm2", str(file), "--output", str(tmp_path))
        assert refused.code == 2
        assert "b.toml: exists" in refused.err
        assert (tmp_path / "b.toml").read_text() == "mine"
        assert not (tmp_path / "a.toml").exists()

    def test_where_nothing_can_be_written(self, run: Run, file: Path) -> None:
        refused = run("config", "import-mm2", str(file), "--output", f"{file}/x.toml")
        assert refused.code == 2
        assert "Traceback" not in refused.err
