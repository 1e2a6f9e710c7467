"""The wheel in a fresh virtual environment, with the dependencies that were tested: it runs the demo."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.infra.deploy.wheels import ROOT, build, tree_of

pytestmark = pytest.mark.long
SECONDS = 1800


def test_a_fresh_environment_runs_the_demo(tmp_path: Path) -> None:
    wheel = build(tree_of("HEAD", tmp_path / "tree"), tmp_path)
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    programs = tmp_path / "venv" / "bin"
    subprocess.run(
        [programs / "pip", "install", "--quiet", "--constraint", ROOT / "constraints.txt", f"{wheel}[local]"],
        check=True,
        timeout=SECONDS,
    )
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment["PATH"] = f"{programs}:{environment['PATH']}"
    helped, demo = (
        subprocess.run(
            [programs / "replicator", *arguments],
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
            env=environment,
            timeout=SECONDS,
        )
        for arguments in (["--help"], ["demo", "--json"])
    )
    assert (helped.returncode, "egress" in helped.stdout) == (0, True), helped.stderr
    reads_assets = "import replicator.console.site"
    subprocess.run([programs / "python", "-c", reads_assets], check=True, cwd=tmp_path, env=environment)
    assert demo.returncode == 0, demo.stderr[-4000:]
    assert json.loads(demo.stdout)
