"""An earlier version and this one side by side: regions are updated in either order, without loss or repetition."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.infra.deploy.wheels import build, tree_of, unpacked
from tests.processes.flow import Flow

if TYPE_CHECKING:
    from tests.processes.harness import Site, Worker

pytestmark = [pytest.mark.integration, pytest.mark.long]

EARLIER = ("55cec5de98afa49acfb1e4f5972f301d34ddd58d",)


@pytest.fixture(scope="module", params=EARLIER, ids=lambda commit: commit[:8])
def programs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """Folders with the packages of the wheels: `old` and `new`."""
    folder = tmp_path_factory.mktemp("wheels")
    found = {}
    for name, commit in (("old", request.param), ("new", "HEAD")):
        wheels = folder / f"{name}-wheels"
        wheels.mkdir()
        found[name] = unpacked(build(tree_of(commit, folder / f"{name}-tree"), wheels), folder / name)
    return found


@pytest.mark.parametrize("first", ["egress", "ingress"])
def test_regions_are_updated_one_after_the_other(site: Site, programs: Mapping[str, Path], first: str) -> None:
    """Both old, then one new, then both: at each stage everything that was produced arrives."""
    with Flow(site, partitions=3) as flow:
        workers = {
            "egress": site.egress("egress", {flow.topic: {}}),
            "ingress": site.ingress("ingress", {"topic": flow.topic}),
        }
        for worker in workers.values():
            start(worker, programs["old"])
        crosses(flow, seed=1)
        for seed, name in enumerate((first, *(other for other in workers if other != first)), start=2):
            workers[name].stop()
            start(workers[name], programs["new"])
            crosses(flow, seed=seed)
        for worker in workers.values():
            worker.stop()
        flow.judge_target(rewinds=0)
        flow.judge_archive()


def start(worker: Worker, program: Path) -> None:
    """With the packages of this folder, and of no other."""
    imported = [sys.executable, "-c", "import replicator; print(replicator.__file__)"]
    found = subprocess.run(imported, cwd=program, capture_output=True, text=True, check=True).stdout.strip()
    assert found == str(program / "replicator" / "__init__.py")
    worker.start(program=program)


def crosses(flow: Flow, *, seed: int) -> None:
    with flow.traffic(seed=seed, most=50) as traffic:
        flow.wait_for_more(100)
        words = traffic.finish()
    flow.wait_for(words)
