"""What a wheel has: every package of the program, its typing marker and its licences; no tests, no measurements."""

from __future__ import annotations

import tomllib
from fnmatch import fnmatchcase
from pathlib import Path

from infra.spark.packages import PACKAGES

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_a_wheel_has_the_packages_and_nothing_else() -> None:
    include = PROJECT["tool"]["setuptools"]["packages"]["find"]["include"]
    folders = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert {"tests", "bench"} & folders, "there is something to leave out"
    assert {one for one in folders if any(fnmatchcase(one, pattern) for pattern in include)} == set(PACKAGES)


def test_a_wheel_has_what_goes_with_them() -> None:
    for folder, names in PROJECT["tool"]["setuptools"]["package-data"].items():
        assert [name for name in names if not any(path.is_file() for path in (ROOT / folder).glob(name))] == []
    assert "py.typed" in PROJECT["tool"]["setuptools"]["package-data"]["replicator"]
    patterns = PROJECT["tool"]["setuptools"]["package-data"]["replicator"]
    beside = [
        path for path in (ROOT / "replicator").rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc")
    ]
    names = [path.relative_to(ROOT / "replicator").as_posix() for path in beside]
    assert "console/assets/page.html" in names
    assert [name for name in names if not any(fnmatchcase(name, pattern) for pattern in patterns)] == []
    assert [name for name in PROJECT["project"]["license-files"] if not (ROOT / name).is_file()] == []
