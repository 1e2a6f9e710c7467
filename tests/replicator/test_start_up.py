"""What a command loads: as much as it needs, so that it answers soon and a service does not hold what it never uses."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from typer.testing import CliRunner

from infra.runtime.tuning import ALLOCATOR_SETTINGS, KEPT, arenas_of_arrow
from replicator.main import app, main

FLOWS = ("compaction", "egress", "ingress")
HEAVY = {"awscrt", "boto3", "botocore", "confluent_kafka", "croniter", "numpy", "pandas", "prometheus_client"}
HEAVY |= {"py4j", "pyarrow", "pydantic", "pydantic_core", "pyspark", "rich"}
COMMAND_LINE = {"annotated_doc", "shellingham", "typer"}
BOTOCORE = {"_awscrt", "awscrt", "botocore", "certifi", "dateutil", "jmespath", "six", "urllib3"}
ARROW = {"cython_runtime", "numpy", "pyarrow"}  # Arrow loads numpy where it is installed
SERVICE = COMMAND_LINE | BOTOCORE | ARROW | {"confluent_kafka", "prometheus_client", "tenacity"}
STANDARD = "asyncio, dataclasses, inspect, json, logging, subprocess, typing"
OURS = {"compaction", "egress", "formats", "infra", "ingress", "replicator"}

OF_THE_INSTALLATION = ("_cython_", "_distutils_hack", "_sysconfigdata_", "__editable__", "_virtualenv")
"""Modules that an interpreter has, or that a library makes."""

SMALL = {"errors", "segment", "incarnation", "coverage"}  # of formats
BESIDE_COMMANDS = {"failover", "main", "restore", "restore.choices", "services", "services.command_logs"}
BESIDE_COMMANDS |= {"services.foreign_kind"}  # of replicator

RUN = """
import json, sys
sys.argv = ["replicator", *sys.argv[1:]]
from replicator.main import main
try:
    main()
except SystemExit as end:
    code = end.code
if "pyarrow" in sys.modules:
    sys.modules["pyarrow"].array([1])  # what a service does with its first records
print(json.dumps([code or 0, sorted(sys.modules)]))
"""


@cache
def modules(expected: int, *arguments: str | Path) -> frozenset[str]:
    """Those that `replicator` with these arguments loads until it ends, with the exit code `expected`."""
    command = [sys.executable, "-c", RUN, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    code, loaded = json.loads(done.stdout.splitlines()[-1])
    assert code == expected, done.stderr
    return frozenset(loaded)


def of_flow(loaded: frozenset[str], flow: str) -> set[str]:
    """Modules of a flow, without its settings: a file holds the settings of all of them."""
    found = {name for name in loaded if name.startswith(f"{flow}.")}
    parents = {name.rpartition(".")[0] for name in found}
    return {name for name in found if not name.endswith("settings")} - parents


def packages(loaded: frozenset[str]) -> set[str]:
    return {name.partition(".")[0] for name in loaded}


@pytest.fixture(scope="module")
def without_sections(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with which a service loads all its modules, and then misses its section."""
    path = tmp_path_factory.mktemp("file") / "replicator.toml"
    path.write_text('region = "r"\nkafka = {"bootstrap.servers" = "localhost:1"}\ns3 = {bucket = "b"}\n')
    return path


@pytest.mark.parametrize("arguments", [("--help",), ("egress", "--help"), ("restore", "--help"), ("--version",)])
def test_help_loads_the_commands_alone(arguments: tuple[str, ...]) -> None:
    loaded = modules(0, *arguments)
    assert not HEAVY & packages(loaded)
    assert not set(FLOWS) & packages(loaded)
    assert below("formats", loaded) <= SMALL
    assert {name for name in below("infra", loaded) if not name.startswith("runtime")} == set()
    others = {name for name in below("replicator", loaded) if not name.startswith(("commands", "terminal"))}
    assert others <= BESIDE_COMMANDS


def below(package: str, loaded: frozenset[str]) -> set[str]:
    return {name.removeprefix(f"{package}.") for name in loaded if name.startswith(f"{package}.")}


@pytest.mark.parametrize(("service", "other"), [("egress", "ingress"), ("ingress", "egress")])
def test_a_service_loads_what_it_needs(without_sections: Path, service: str, other: str) -> None:
    loaded = modules(2, service, "--config", without_sections)
    assert f"{service}.controller" in loaded
    assert of_flow(loaded, other) == set()
    assert of_flow(loaded, "compaction") == set()
    assert not {"pandas", "pyspark", "py4j", "boto3", "rich", "croniter"} & loaded


@pytest.mark.parametrize(
    "arguments",
    [
        ("egress",),
        ("ingress",),
        ("sync", "--once"),
        ("restore", "t", "--max-rate", "-"),
        ("verify", "--from", "-"),
        ("drill", "^("),
        ("repair-segment", "s", "--from", "f"),
    ],
    ids=lambda arguments: arguments[0],
)
def test_the_allocator_of_arrow_has_our_settings_and_then_those_of_the_user(
    without_sections: Path, arguments: tuple[str, ...]
) -> None:
    """It reads them when Arrow is loaded: a command that loads Arrow before it sets up its memory has none of them."""
    assert f'"{arenas_of_arrow()},confirm_conf:true"' in settings_of_the_allocator(without_sections, arguments)


def test_a_process_of_a_tuned_process_has_settings_of_its_own(without_sections: Path) -> None:
    inherited = f"narenas:64,{KEPT},confirm_conf:true"  # of one that had more cores
    found = settings_of_the_allocator(without_sections, ("egress",), inherited)
    assert f'"{arenas_of_arrow()},confirm_conf:true"' in found


def settings_of_the_allocator(file: Path, arguments: tuple[str, ...], given: str = "confirm_conf:true") -> str:
    """What a command prints; with `confirm_conf`, its settings are among it."""
    command = [sys.executable, "-m", "replicator", *arguments, "--config", str(file)]
    environment = {**os.environ, ALLOCATOR_SETTINGS: given}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=environment)
    assert done.returncode == 2, done.stderr
    return done.stderr


NOT_OF_SERVICES = {
    *("infra.local", "infra.spark", "infra.storage.bucket_setup", "infra.storage.envelope", "infra.storage.kms_keys"),
    *("replicator.console", "replicator.demo", "replicator.doctor", "replicator.rights", "replicator.spark_source"),
    *("replicator.backfill", "replicator.status", "replicator.top", "replicator.verify"),
}
"""Modules and folders: of other commands, and of [encryption], which few files have."""


@pytest.mark.parametrize(
    ("command", "code", "allowed"),
    [
        ("egress", 2, SERVICE),
        ("ingress", 2, SERVICE),
        ("sync", 2, SERVICE),
        ("gc", 2, SERVICE - ARROW),
        ("status", 0, (SERVICE | {"croniter"}) - ARROW - {"prometheus_client"}),
        ("config show", 0, COMMAND_LINE | {"confluent_kafka"}),
    ],
)
def test_packages_and_modules_of_a_command(without_sections: Path, command: str, code: int, allowed: set[str]) -> None:
    loaded = modules(code, *command.split(), "--config", without_sections)
    others = packages(loaded) - OURS - set(sys.stdlib_module_names) - {"__main__"}
    assert {name for name in others if not name.startswith(OF_THE_INSTALLATION)} <= allowed
    left_out = {*NOT_OF_SERVICES} - ({"replicator.status"} if command == "status" else set())
    assert {name for name in left_out if name in loaded or below(name, loaded)} == set()


def test_status_does_not_load_what_serves_metrics(without_sections: Path) -> None:
    """It has no metrics; these were 36 modules."""
    loaded = modules(0, "status", "--config", without_sections)
    assert not {"prometheus_client", "http.server", "wsgiref", "infra.runtime.health_server"} & loaded


def test_status_without_ingress_does_not_load_arrow(without_sections: Path) -> None:
    loaded = modules(0, "status", "--config", without_sections)
    assert "replicator.status.egress" in loaded
    assert not {"pyarrow", "pandas", "numpy", "pyspark"} & loaded


def test_help_without_parameters_is_the_help_of_all_commands(capsys: pytest.CaptureFixture[str]) -> None:
    """`--help` reads the parameters of no command, which took half of its time; it prints the same."""
    whole = CliRunner().invoke(app, ["--help"], prog_name="replicator")
    assert (whole.exit_code, "restore" in whole.output) == (0, True)
    with pytest.raises(SystemExit) as end:
        main(["--help"])
    assert (end.value.code, capsys.readouterr().out) == (0, whole.output)


@pytest.mark.cpu
@pytest.mark.parametrize("arguments", [("--help",), ("--version",), ("status", "--help")])
def test_help_answers_within_0_3_seconds(arguments: tuple[str, ...]) -> None:
    """Of processor time, which is what it takes on a machine with nothing else to do. A core that takes over 0.13 s
    for some of the standard library is given as much more."""
    times = [(cost("-c", f"import {STANDARD}"), cost("-m", "replicator", *arguments)) for _ in range(4)]
    standard, ours = (min(each) for each in zip(*times, strict=True))
    assert ours < max(0.3, 2.3 * standard)


def cost(*arguments: str) -> float:
    """Seconds of processor time of a new Python."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    subprocess.run([sys.executable, *arguments], env=environment, stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
