"""The detached stack: started by one command, ended by another.

    up_detached ── starts ──> supervisor, brokers, moto ── keep running after `up_detached` has returned
        └ <dir>/state.json ──> status, down

`dir` is `local-stack` in the user's cache folder, which `down` removes, or a folder that the user chose, which keeps
its data.
A pid in the file counts only together with the start time of its process, so that `down` never ends another process.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self

from infra.local.cache import cache_dir, locked
from infra.local.errors import LocalStackError
from infra.local.identity import ProcessIdentity
from infra.local.jars import KAFKA_VERSION
from infra.local.process import GRACE, KILL_TIMEOUT
from infra.local.stack import LocalStack
from infra.local.waiting import wait_until

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterable, Mapping

STATE_FILE = "state.json"
VERSION = 1
CHECK_INTERVAL = timedelta(seconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class StackState:
    """Facts about a detached stack for `down`, `status` and users of the stack. `brokers`: `bootstrap.servers` by
    region."""

    dir: Path
    keep_dir: bool
    kafka_version: str
    started_at: datetime
    brokers: Mapping[str, str]
    endpoint_url: str
    processes: Mapping[str, ProcessIdentity]

    def __post_init__(self) -> None:
        if "supervisor" not in self.processes:
            raise ValueError("processes must name the supervisor")
        if self.started_at.tzinfo is None:
            raise ValueError("started_at must be aware")

    @property
    def log_dir(self) -> Path:
        return self.dir / "logs"

    def to_json(self) -> dict[str, Any]:
        """JSON values for the state file and for `--json`."""
        return {
            "version": VERSION,
            "dir": str(self.dir),
            "log_dir": str(self.log_dir),
            "keep_dir": self.keep_dir,
            "kafka_version": self.kafka_version,
            "started_at": self.started_at.isoformat(),
            "brokers": dict(self.brokers),
            "endpoint_url": self.endpoint_url,
            "processes": {name: {"pid": one.pid, "born": one.started} for name, one in self.processes.items()},
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Inverse of `to_json`. Raises ValueError, KeyError or TypeError for other values."""
        if values["version"] != VERSION:
            raise ValueError(f"version {values['version']}, wanted {VERSION}")
        return cls(
            dir=Path(values["dir"]),
            keep_dir=bool(values["keep_dir"]),
            kafka_version=values["kafka_version"],
            started_at=datetime.fromisoformat(values["started_at"]),
            brokers=MappingProxyType(dict(values["brokers"])),
            endpoint_url=values["endpoint_url"],
            processes=MappingProxyType(
                {
                    name: ProcessIdentity(pid=one["pid"], started=one["born"])
                    for name, one in values["processes"].items()
                }
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StackStatus:
    """Current state of a detached stack. `alive`: by process name."""

    state: StackState
    alive: Mapping[str, bool]

    @property
    def up(self) -> bool:
        """Whether every process runs."""
        return all(self.alive.values())

    @property
    def down(self) -> bool:
        """Whether no process runs: the machine was restarted, or the processes were ended by hand."""
        return not any(self.alive.values())


def run_foreground(
    *,
    on_ready: Callable[[LocalStack], None],
    stop: threading.Event,
    regions: tuple[str, ...] = ("a", "b"),
    dir: Path | None = None,  # noqa: A002
    broker_config: Mapping[str, str] = MappingProxyType({}),
    kafka_version: str = KAFKA_VERSION,
) -> None:
    """Run a stack until `stop` is set or Ctrl-C is pressed (KeyboardInterrupt passes through). Raises LocalStackError
    if one of its processes dies."""
    with LocalStack(regions=regions, dir=dir, broker_config=broker_config, kafka_version=kafka_version) as stack:
        on_ready(stack)
        while not stop.wait(CHECK_INTERVAL.total_seconds()):
            stack.check()


def up_detached(
    *,
    regions: tuple[str, ...] = ("a", "b"),
    dir: Path | None = None,  # noqa: A002
    broker_config: Mapping[str, str] = MappingProxyType({}),
    kafka_version: str = KAFKA_VERSION,
    prepare: Callable[[LocalStack], None] = lambda _stack: None,
) -> StackState:
    """Start a stack that outlives this process. Raises LocalStackError if one runs already in that folder.

    `prepare` is called while the stack still ends with this process, which also happens when `prepare` raises.
    Processes that it starts in the stack are detached with it, except those that have ended by then.
    """
    folder = _folder(dir)
    with locked(cache_dir() / "local-up.lock"):
        present = status(dir=dir)
        if present is not None and not present.down:
            pids = ", ".join(
                f"{name} {one.pid}" for name, one in present.state.processes.items() if present.alive[name]
            )
            raise LocalStackError(f"a stack runs already in {folder} ({pids}): end it first (replicator local down)")
        if present is not None:
            _forget(folder, present.state)
        stack = LocalStack(
            regions=regions,
            dir=folder,
            broker_config=broker_config,
            kafka_version=kafka_version,
            keep_dir=dir is not None,
        )
        with stack:
            prepare(stack)
            state = StackState(
                dir=stack.dir,
                keep_dir=dir is not None,
                kafka_version=kafka_version,
                started_at=datetime.now(UTC),
                brokers={region: broker.bootstrap for region, broker in stack.brokers.items()},
                endpoint_url=stack.moto.endpoint_url,
                processes={name: one for name, one in stack.identities().items() if one.alive()},
            )
            _write(folder / STATE_FILE, state)  # before the detach: no process may run without being in the file
            stack.detach()
    return state


def status(*, dir: Path | None = None) -> StackStatus | None:  # noqa: A002
    """The detached stack in that folder; None if there is none. Raises LocalStackError if its file cannot be read."""
    path = _folder(dir) / STATE_FILE
    try:
        state = StackState.from_json(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise LocalStackError(
            f"cannot read {path}: {error!r}. If a stack runs, end its supervisor (ps ax | grep supervisor.py); "
            "then remove that file"
        ) from error
    return StackStatus(state=state, alive={name: one.alive() for name, one in state.processes.items()})


def down(*, dir: Path | None = None) -> StackState | None:  # noqa: A002
    """End the detached stack in that folder, and no other process; None if there is none. May be called twice."""
    folder = _folder(dir)
    present = status(dir=dir)
    if present is None:
        return None
    processes = present.state.processes
    patience = GRACE + KILL_TIMEOUT
    _signal([processes["supervisor"]], signal.SIGTERM)  # it ends the others
    if processes["supervisor"].alive():
        wait_until(lambda: not _left(processes.values()), patience)
    for number in (signal.SIGTERM, signal.SIGKILL):  # only if the supervisor was killed
        _signal(_left(processes.values()), number)
        wait_until(lambda: not _left(processes.values()), GRACE)
    if left := _left(processes.values()):
        pids = " ".join(str(one.pid) for one in left)
        raise LocalStackError(f"these processes do not end: kill -9 {pids}; then call down again")
    _forget(folder, present.state)
    return present.state


def _folder(dir: Path | None) -> Path:  # noqa: A002
    return dir.absolute() if dir is not None else cache_dir() / "local-stack"


def _write(path: Path, state: StackState) -> None:
    partial = path.with_name(f"{path.name}.partial")
    partial.write_text(json.dumps(state.to_json(), indent=2) + "\n", encoding="utf-8")
    partial.replace(path)


def _forget(folder: Path, state: StackState) -> None:
    if state.keep_dir:
        (folder / STATE_FILE).unlink(missing_ok=True)
    else:
        shutil.rmtree(folder, ignore_errors=True)


def _left(processes: Iterable[ProcessIdentity]) -> list[ProcessIdentity]:
    return [one for one in processes if one.alive()]


def _signal(processes: Iterable[ProcessIdentity], number: signal.Signals) -> None:
    for one in processes:
        if one.alive():
            with contextlib.suppress(ProcessLookupError):
                os.kill(one.pid, number)
