"""The units of systemd: systemd accepts them, and they fit the program as it is."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import fields
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from egress.settings import EgressSettings
from infra.runtime.service import RELOAD, SIGNALS
from ingress.settings import IngressSettings
from replicator.config import parse
from replicator.services.gathered import HEARING
from replicator.services.on_spark import JAVA_ENDS
from replicator.services.wiring import GRACE

FOLDER = Path(__file__).parents[3] / "infra" / "deploy" / "systemd"
ROOT = FOLDER.parents[2]
KEYS = FOLDER / "encryption.conf"
UNITS = sorted(FOLDER.glob("*.service"))
PROGRAM = "/opt/replicator/bin/replicator"
SERVICES = {"egress": EgressSettings, "ingress": IngressSettings}


def settings_of(unit: Path) -> dict[str, list[str]]:
    """Values by name, in order."""
    found: dict[str, list[str]] = {}
    for line in unit.read_text(encoding="utf-8").splitlines():
        if (match := re.fullmatch(r"([A-Za-z]+)=(.*)", line)) is not None:
            found.setdefault(match[1], []).append(match[2])
    return found


def shutdown_timeout(settings: type[Any]) -> timedelta:
    (default,) = (one.default for one in fields(settings) if one.name == "shutdown_timeout")
    assert isinstance(default, timedelta)
    return default


def test_there_is_one_for_each_long_running_command() -> None:
    assert [unit.stem for unit in UNITS] == ["replicator-compact", "replicator-egress", "replicator-ingress"]


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
class TestEachUnit:
    def test_runs_the_command_of_its_name(self, unit: Path) -> None:
        assert settings_of(unit)["ExecStart"] == [f"{PROGRAM} {unit.stem.removeprefix('replicator-')}"]

    def test_ends_by_a_signal_that_the_program_handles_and_in_time(self, unit: Path) -> None:
        """Raise TimeoutStopSec with the default of the setting."""
        found = settings_of(unit)
        (number,) = found["KillSignal"]
        assert number in {signal.name for signal in SIGNALS}
        assert found["KillMode"] == ["mixed"], "a second signal, or one to Java, ends without order"
        command = unit.stem.removeprefix("replicator-")
        needed = shutdown_timeout(SERVICES[command]) + GRACE + 2 * HEARING if command in SERVICES else JAVA_ENDS
        assert int(found["TimeoutStopSec"][0]) > needed.total_seconds()

    def test_reloads_where_the_program_does(self, unit: Path) -> None:
        reloads = settings_of(unit).get("ExecReload", [])
        is_service = unit.stem.removeprefix("replicator-") in SERVICES
        assert reloads == ([f"/bin/kill -{RELOAD.name.removeprefix('SIG')} $MAINPID"] if is_service else [])

    def test_has_no_secret_and_a_file_for_them(self, unit: Path) -> None:
        found = settings_of(unit)
        assert found["Environment"][0] == "REPLICATOR_CONFIG=/etc/replicator/replicator.toml"
        assert [one.partition("=")[0] for one in found["Environment"][1:]] == ["PORT"]
        assert found["EnvironmentFile"] == ["/etc/replicator/secrets.env"]

    def test_may_write_where_the_files_of_two_regions_spool(self, unit: Path) -> None:
        (folder,) = settings_of(unit)["StateDirectory"]
        for file in FOLDER.parent.glob("*.toml"):
            assert f'spool_dir = "/var/lib/{folder}"' in file.read_text(encoding="utf-8")

    @pytest.mark.parametrize("dropped_in", [(), (KEYS,)], ids=["", "with keys"])
    def test_systemd_finds_no_fault(self, unit: Path, dropped_in: Sequence[Path], tmp_path: Path) -> None:
        """With a program that exists here."""
        assert findings(unit, dropped_in, tmp_path) == (0, "")

    def test_systemd_finds_a_planted_fault_of_the_keys(self, unit: Path, tmp_path: Path) -> None:
        planted = tmp_path / KEYS.name
        planted.write_text(
            KEYS.read_text(encoding="utf-8").replace("LoadCredential=", "LoadCredentials="), encoding="utf-8"
        )
        _, complaint = findings(unit, [planted], tmp_path)
        assert "LoadCredentials" in complaint

    def test_is_as_closed_as_a_service_of_the_network_can_be(self, unit: Path) -> None:
        """By systemd's own scale of 0 to 10, in tenths; `systemd-analyze security` names what is left open."""
        done = subprocess.run(
            [systemd("systemd-analyze"), "security", "--offline=yes", "--threshold=20", unit],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr


def findings(unit: Path, dropped_in: Sequence[Path], folder: Path) -> tuple[int, str]:
    """The exit code and the complaints of systemd about the unit, with a program that exists here."""
    program = Path(sys.executable).with_name("replicator")
    copy, drops = folder / unit.name, folder / f"{unit.name}.d"
    copy.write_text(unit.read_text(encoding="utf-8").replace(PROGRAM, str(program)), encoding="utf-8")
    drops.mkdir()
    for one in dropped_in:
        shutil.copy(one, drops)
    command = [systemd("systemd-analyze"), "verify", "--man=no", str(copy)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


def test_the_keys_are_where_the_file_of_the_page_says() -> None:
    """systemd names the folder to the process: a file of [encryption] finds them there."""
    (credential,) = settings_of(KEYS)["LoadCredential"]
    name, _, source = credential.partition(":")
    page = (ROOT / "docs" / "deploy-systemd.md").read_text(encoding="utf-8")
    (table,) = [block for block in re.findall(r"```toml\n(.*?)```", page, re.DOTALL) if "[encryption]" in block]
    found = parse(f'region = "r"\n[s3]\nbucket = "b"\n{table}', environment={"CREDENTIALS_DIRECTORY": "/run/c"})
    assert found.encryption is not None
    assert found.encryption.key_file == Path("/run/c") / name
    assert source in page


def test_the_services_of_one_host_listen_on_a_port_each() -> None:
    """All units read one file: with one port in it, only the first service starts."""
    page = (ROOT / "docs" / "deploy-systemd.md").read_text(encoding="utf-8")
    (table,) = [block for block in re.findall(r"```toml\n(.*?)```", page, re.DOTALL) if "[metrics]" in block]
    ports = []
    for unit in UNITS:
        environment = dict(one.split("=", 1) for one in settings_of(unit)["Environment"])
        found = parse(f'region = "r"\n[s3]\nbucket = "b"\n{table}', environment=environment)
        assert found.metrics.listen is not None
        ports.append(found.metrics.listen.rpartition(":")[2])
    assert len(set(ports)) == len(UNITS)
    assert all(port in page for port in ports), "Prometheus has to know them"


def test_the_user_is_one_that_systemd_can_create(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    done = subprocess.run(
        [systemd("systemd-sysusers"), f"--root={tmp_path}", FOLDER / "replicator.sysusers.conf"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    names = {line.partition(":")[0] for line in (tmp_path / "etc" / "passwd").read_text(encoding="utf-8").splitlines()}
    assert {name for unit in UNITS for name in settings_of(unit)["User"]} == names


def systemd(program: str) -> str:
    """Its path. Skips the test where there is no systemd."""
    if (found := shutil.which(program)) is None:
        pytest.skip(f"{program} is not installed")
    return found
