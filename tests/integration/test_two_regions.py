"""The page docs/two-regions.md, played as a reader plays it: its files are saved, and its commands run in one shell."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest

from infra.local.cache import CACHE_VARIABLE, cache_dir
from tests.docs.markdown import ROOT, blocks

pytestmark = [pytest.mark.integration, pytest.mark.long]

BLOCKS = list(blocks(ROOT / "docs" / "two-regions.md"))
FILE = "file: "
PATIENCE = timedelta(minutes=3)
END_SERVICES = "trap 'kill $(jobs -p) 2> /dev/null || true' EXIT"  # wherever the commands end


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[Mapping[str, str]]:
    """Of a user with a stack of their own, and with the jars that this machine has fetched."""
    cache = tmp_path / "cache"
    cache.mkdir()
    for fetched in cache_dir().glob("kafka-*"):
        (cache / fetched.name).symlink_to(fetched)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "REPLICATOR_"))}
    variables = {**kept, "PATH": path, CACHE_VARIABLE: str(cache)}
    try:
        yield variables
    finally:
        subprocess.run(["replicator", "local", "down"], env=variables, check=True, timeout=PATIENCE.total_seconds())


def test_its_commands_do_what_it_says(tmp_path: Path, environment: Mapping[str, str]) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()
    for block in BLOCKS:
        if block.mark.startswith(FILE):
            (folder / block.mark.removeprefix(FILE)).write_text(block.text, encoding="utf-8")
    commands = [block.text for block in BLOCKS if block.language == "sh"]
    script = "\n".join(["set -e", END_SERVICES, *commands])
    with subprocess.Popen(
        ["bash", "-c", script],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as shell:
        try:
            output, _ = shell.communicate(timeout=PATIENCE.total_seconds())
        finally:
            with suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)  # nothing is left in it unless the test failed
    assert shell.returncode == 0, output
    assert "2 regions: they do not contradict each other" in output
    assert "1000 records have arrived" in output
    assert "everything is as it should be" in output
    assert output.count(" = a.orders/") == 3
    for service in ("egress", "sync", "ingress"):
        assert '"event": "stopped"' in (folder / f"{service}.log").read_text(encoding="utf-8")
