"""An earlier version and this one side by side, without loss or repetition:

    both regions old  ──>  one group is updated, a process at a time  ──>  the other one  ──>  and back again

in either order of the regions, under traffic, with static members. Both versions then prove the same archive.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from replicator.terminal.output import DIFFERENCES
from tests.fakes.key_files import key_text
from tests.infra.deploy.wheels import build, tree_of, unpacked
from tests.processes.flow import Flow

if TYPE_CHECKING:
    from tests.processes.harness import Site, Tables, Worker

pytestmark = [pytest.mark.integration, pytest.mark.long]

EACH = 2  # processes of a group
PARTITIONS = 4
SESSION_MS = 20_000  # a static member that begins again within it gets its partitions back at once
PATIENCE = timedelta(minutes=5)  # eight processes, two brokers and the judges share the machine
STOPS_WITHIN = timedelta(minutes=2)
VERIFY_SECONDS = 300

SINCE_CONTROL_PLANE = frozenset({"config_properties_exclude", "ledger_topic"})
SINCE_GROUPS = frozenset({"offset_map_topic"})
SINCE_ENCRYPTION = frozenset({"encryption"})


@dataclass(frozen=True, slots=True)
class Earlier:
    """A version: its commit, what came next, and the settings of these tests that it does not know."""

    commit: str
    before: str
    lacks: frozenset[str] = frozenset()


EARLIER = (
    Earlier("548321f8760d350bc692784df91eb4dec2da216b", "forks", SINCE_CONTROL_PLANE | SINCE_GROUPS),
    Earlier("4248df2c0b27305a95641a5b779129bbe3851a57", "modules-moved", SINCE_CONTROL_PLANE | SINCE_GROUPS),
    Earlier("0aef71aa443b7d4b309718161fdf30ad6abee8e6", "control-plane", SINCE_CONTROL_PLANE | SINCE_GROUPS),
    Earlier("4cf0f4ce5663cf837bdcbe74c0ae44bf91115baa", "groups", SINCE_GROUPS),
    Earlier("389ad7f729b92ea31ba2fbc8796ce04a9f6b2a33", "spark-stages"),
    Earlier("55cec5de98afa49acfb1e4f5972f301d34ddd58d", "compiled-records-and-encryption"),
)


@dataclass(frozen=True, slots=True)
class Version:
    """A program that runs: the folder of its packages, and the settings that it does not know."""

    program: Path
    lacks: Collection[str] = ()

    def knows(self, tables: Tables) -> Tables:
        """The tables, but for settings that this version would refuse."""
        return {
            name: self.knows(value) if isinstance(value, Mapping) else value
            for name, value in tables.items()
            if name not in self.lacks
        }

    def start(self, worker: Worker, tables: Tables) -> None:
        worker.tables = self.knows(tables)
        worker.start(program=self.program)


@pytest.fixture(scope="module")
def new(tmp_path_factory: pytest.TempPathFactory) -> Version:
    return Version(_unpacked("HEAD", tmp_path_factory.mktemp("new")))


@pytest.fixture(scope="module", params=EARLIER, ids=lambda each: f"{each.commit[:8]}-before-{each.before}")
def old(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Version:
    program = _unpacked(request.param.commit, tmp_path_factory.mktemp("old"))
    return Version(program, request.param.lacks | SINCE_ENCRYPTION)


def _unpacked(commit: str, folder: Path) -> Path:
    """The packages of this commit's wheel; nothing else of it can be imported from there."""
    wheels, program = folder / "wheels", folder / "program"
    wheels.mkdir()
    unpacked(build(tree_of(commit, folder / "tree"), wheels), program)
    imported = [sys.executable, "-c", "import replicator; print(replicator.__file__)"]
    found = subprocess.run(imported, cwd=program, capture_output=True, text=True, check=True).stdout.strip()
    assert found == str(program / "replicator" / "__init__.py")
    return program


@pytest.mark.parametrize("first", ["egress", "ingress"])
def test_a_process_at_a_time_there_and_back(site: Site, old: Version, new: Version, first: str) -> None:
    with Flow(site, partitions=PARTITIONS) as flow:
        groups = Groups(site, flow)
        order = sorted(groups.names, key=lambda name: name != first)
        for worker in groups.of(*order):
            groups.start(worker, old)
        with flow.traffic(seed=1, most=50) as traffic:
            groups.all_take_part()
            groups.update(order, new)
            words = traffic.finish()
        flow.wait_for(words, PATIENCE)
        judge(flow)
        with flow.traffic(seed=2, most=50) as traffic:
            groups.update(reversed(order), old)
            words = traffic.finish()
        flow.wait_for(words, PATIENCE)
        for worker in groups.of(*order):
            worker.tell_to_stop()
        for worker in groups.of(*order):
            worker.stopped(STOPS_WITHIN)
        judge(flow)
        for version in (old, new):
            groups.prove(version)


def test_an_earlier_version_stops_at_encrypted_segments_and_this_one_goes_on(
    site: Site, old: Version, new: Version
) -> None:
    """Encryption that is switched on before every reader was updated loses nothing."""
    keys = site.folder / "keys.toml"
    keys.write_text(key_text("new", new=1), encoding="utf-8")
    section = {"encryption": {"key": "file", "key_file": str(keys)}}
    with Flow(site, partitions=PARTITIONS) as flow:
        egress = site.egress("egress", {flow.topic: {}})
        ingress = site.ingress("ingress", {"topic": flow.topic}, transaction_timeout="60s")
        in_clear, encrypted = egress.tables, {**egress.tables, **section}
        reads = {**ingress.tables, **section}
        new.start(egress, in_clear)
        old.start(ingress, reads)
        flow.wait_for(flow.produce([]), PATIENCE)
        egress.stop(STOPS_WITHIN)
        new.start(egress, encrypted)
        words = flow.produce([])
        site.wait("a stop at what is encrypted", lambda: bool(ingress.logged("partition_stopped")), PATIENCE)
        assert not flow.has_arrived(words)
        ingress.stop(STOPS_WITHIN)
        new.start(ingress, reads)
        flow.wait_for(words, PATIENCE)
        for worker in (egress, ingress):
            worker.stop(STOPS_WITHIN)
        judge(flow)


class Groups:
    """Two processes of egress and two of ingress, each a static member. `site.workers` ends them."""

    def __init__(self, site: Site, flow: Flow) -> None:
        self._site, self._flow = site, flow
        self.names: Mapping[str, Sequence[Worker]] = {
            "egress": [site.egress(f"egress-{n}", {flow.topic: {}}, kafka=_member(f"egress-{n}")) for n in range(EACH)],
            "ingress": [
                site.ingress(
                    f"ingress-{n}",
                    {"topic": flow.topic},
                    kafka=_member(f"ingress-{n}"),
                    transaction_timeout="60s",  # a process that the machine does not run for so long is fenced
                )
                for n in range(EACH)
            ],
        }
        self._tables = {worker.name: worker.tables for worker in self.of(*self.names)}
        self._begins: dict[str, int] = {}

    def of(self, *names: str) -> Sequence[Worker]:
        return [worker for name in names for worker in self.names[name]]

    def start(self, worker: Worker, version: Version) -> None:
        self._begins[worker.name] = worker.log.stat().st_size if worker.log.exists() else 0
        version.start(worker, self._tables[worker.name])

    def update(self, order: Iterable[str], version: Version) -> None:
        """One process after the other, each of which does its share before the next one."""
        for worker in self.of(*order):
            worker.stop(STOPS_WITHIN)
            self.start(worker, version)
            self._site.wait(f"a share of {worker.name}", partial(self._takes_part, worker), PATIENCE)

    def all_take_part(self) -> None:
        workers = self.of(*self.names)
        self._site.wait("a share of each process", lambda: all(map(self._takes_part, workers)), PATIENCE)

    def _takes_part(self, worker: Worker) -> bool:
        """Since it was started it archived or delivered segments, and the target has their records."""
        done = "segment_stored" if worker in self.names["egress"] else "segment_delivered"
        return len(worker.logged(done, since=self._begins[worker.name])) >= PARTITIONS

    def prove(self, version: Version) -> None:
        """This version reads every object of the archive, finds in it what both clusters have, and reads where both
        groups are: `status` ends with 1 if it could not."""
        egress, ingress = (self.names[name][0] for name in ("egress", "ingress"))
        for worker in (egress, ingress):
            worker.write(version.knows(self._tables[worker.name]))
        source, target = (str(self._site.folder / f"{worker.name}.toml") for worker in (egress, ingress))
        renamed = f"{self._flow.topic}={self._flow.target}"
        for files in (["--source", source], ["--no-archive", "--target", target, "--rename", renamed]):
            code, printed = egress.run(
                "verify", self._flow.topic, *files, program=version.program, seconds=VERIFY_SECONDS
            )
            assert code == 0, printed
        for worker in (egress, ingress):
            code, printed = worker.run("status", program=version.program)
            assert code in (0, DIFFERENCES), printed


def _member(name: str) -> Tables:
    session = {"session.timeout.ms": str(SESSION_MS), "heartbeat.interval.ms": "500"}
    return {"consumer": {**session, "group.instance.id": name}}


def judge(flow: Flow) -> None:
    flow.judge_target(rewinds=0)
    flow.judge_archive()
    assert not flow.overlaps()
