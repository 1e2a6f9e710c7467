"""Takes over a changed configuration file while a service runs.

    every POLL:  read the file ──digest as at the last check, but not as handled──> parse ──> reload ──> apply
    SIGHUP:      the same at the next check, whatever the digest

A digest is handled once it is found twice, so that a file that an editor is still writing is not refused. Only contents
count: editors and Kubernetes replace a file by another one, by a rename or by a symbolic link. A file that cannot be
read or parsed changes nothing.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Protocol

from formats.errors import ConfigError
from infra.runtime import log_fields
from infra.runtime.health import Health
from infra.runtime.lifecycle import Stop
from infra.runtime.service import Service
from infra.settings.field import Invalid
from infra.settings.secrets import Path as KeyPath
from replicator.config.reload import reload
from replicator.config.settings import Config
from replicator.services.wiring import ServiceContext

log = logging.getLogger(__name__)

POLL = timedelta(seconds=2)
SUBJECT = "configuration"  # in health


class ReloadedFile(Protocol):
    """Where the configuration is from. `SettingsFile` is one."""

    @property
    def path(self) -> object:
        """Its name, for messages."""

    def read(self) -> str:
        """Raises ConfigError."""

    def parse(self, text: str, /) -> Config:
        """The configuration of a text of `read`. Raises ConfigError."""


@dataclass(slots=True, kw_only=True)
class ConfigReloader:
    """`run` runs on a thread of its own, until `stop` is set; `request` may be called from any thread."""

    file: ReloadedFile
    running: Config  # in force
    reads: Collection[KeyPath]  # what the service reads of it
    apply: Callable[[Config], None]
    health: Health
    check: Callable[[Config], None] = lambda _: None  # raises ConfigError: nothing is applied
    stop: Stop
    _requested: threading.Event = field(default_factory=threading.Event)
    _seen: str = ""  # digest at the last check
    _handled: str = ""
    _problem: str = ""

    def request(self) -> None:
        """Read the file at the next check, even if it has not changed."""
        self._requested.set()

    def run(self) -> None:
        while not self.stop.wait(POLL):
            self.poll()

    def poll(self) -> None:
        is_requested = self._requested.is_set()
        self._requested.clear()
        text, problem = self._read()
        digest = hashlib.sha256((problem or text).encode()).hexdigest()
        is_settled, self._seen = digest == self._seen, digest
        if is_requested or (is_settled and digest != self._handled):
            self._handled = digest
            self._report(problem or self._take_over(text, is_requested=is_requested))

    def _read(self) -> tuple[str, str]:
        """The text, or why there is none."""
        try:
            return self.file.read(), ""
        except ConfigError as error:
            return "", _refused(error)

    def _take_over(self, text: str, *, is_requested: bool) -> str:
        """Apply what may be applied. Returns the problem; empty when there is none."""
        try:
            changed = self.file.parse(text)
        except ConfigError as error:
            return _refused(error)
        try:
            found = reload(self.running, changed, self.reads)
            self.check(found.config)
        except Invalid as error:
            return f"{self.file.path}: nothing of it is applied: {error}, until the service is restarted"
        except ConfigError as error:
            return f"{self.file.path}: nothing of it is applied: {'; '.join(error.problems)}"
        if found.applied:
            self.running = found.config
            self.apply(found.config)
        if found.applied or is_requested:
            log.info("config_reloaded", extra={log_fields.SETTINGS: found.applied})
        return f"needs a restart: {', '.join(found.needs_restart)}" if found.needs_restart else ""

    def _report(self, problem: str) -> None:
        """Log a problem once; `/readyz` names it until it is gone."""
        if problem and problem != self._problem:
            log.error("config_not_applied", extra={log_fields.REASON: problem})
        self._problem = problem
        self.health.problem(SUBJECT, problem)


def reloading_service(
    around: ServiceContext,
    loops: Mapping[str, Callable[[], None]],
    shutdown_timeout: timedelta,
    *,
    file: ReloadedFile | None,
    running: Config,
    reads: Collection[KeyPath],
    apply: Callable[[Config], None],
    check: Callable[[Config], None] = lambda _: None,
) -> Service:
    """The service of `loops`, and of one more that takes over changes of `file`, if there is one. `check` raises
    ConfigError where a change must not be applied."""
    if file is None:
        return around.service(dict(loops), shutdown_timeout)
    reloader = ConfigReloader(
        file=file, running=running, reads=reads, apply=apply, health=around.health, stop=around.stop, check=check
    )
    return around.service({**loops, "config": reloader.run}, shutdown_timeout, reloader.request)


def _refused(error: ConfigError) -> str:
    return f"{error.source}: {'; '.join(error.problems)}. The settings of before stay in force: correct the file"
