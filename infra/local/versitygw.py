"""A real S3 server that checks signatures and checksums: versitygw, built once with Go into the cache."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Self

from infra.local.aws import CREDENTIALS
from infra.local.cache import cache_dir, locked
from infra.local.errors import LocalStackError
from infra.local.ports import HOST
from infra.local.process import Supervisor
from infra.local.server import START_TIMEOUT, Server

if TYPE_CHECKING:
    from pathlib import Path

    from infra.local.process import Process

NAME, VERSION = "versitygw", "v1.8.0"
MODULE = "github.com/versity/versitygw/cmd/versitygw"
BUILD_TIMEOUT = timedelta(minutes=15)


def versitygw_program() -> Path:
    """Build the server if absent (minutes). Raises LocalStackError when Go is absent, or the build fails."""
    folder = cache_dir() / f"versitygw-{VERSION}"
    program = folder / "versitygw"
    with locked(cache_dir() / "versitygw.lock"):
        if not program.exists():
            if (go := shutil.which("go")) is None:
                raise LocalStackError("Go is not installed: versitygw cannot be built; install Go, or use moto")
            built = subprocess.run(
                [go, "install", f"{MODULE}@{VERSION}"],
                env=os.environ | {"GOBIN": str(folder)},
                check=False,
                capture_output=True,
                text=True,
                timeout=BUILD_TIMEOUT.total_seconds(),
            )
            if built.returncode:
                raise LocalStackError(f"versitygw {VERSION} cannot be built by Go:\n{built.stderr[-2000:]}")
    return program


class VersityGateway:
    """S3 at one endpoint, within a `with` block; objects are files. Credentials: those of the embedded stack."""

    def __init__(self, folder: Path, *, webhook_url: str | None = None) -> None:
        """`folder`: of the objects, the logs and `access.log`. `webhook_url`: gets a POST with the notification of each
        new object, without a configuration of the bucket; it must answer when the server starts."""
        self.access_log = folder / "access.log"
        self._folder, self._webhook_url = folder, webhook_url
        self._owner: Supervisor | None = None
        self._server = Server(
            name=NAME,
            log=folder / "versitygw.log",
            port_count=1,
            launch=self._launch,
            answers=lambda: True,  # `Server` has seen that the port listens
            abort=threading.Event(),
        )

    @property
    def endpoint_url(self) -> str:
        """Fixed by the first start; raises LocalStackError before it."""
        return f"http://{self._server.address}"

    @property
    def pid(self) -> int:
        assert self._owner is not None, "within the block only"
        return self._owner.identities()[NAME].pid

    def __enter__(self) -> Self:
        """It listens when this returns. Raises LocalStackError with the last lines of the log."""
        versitygw_program()
        (self._folder / "data").mkdir(parents=True, exist_ok=True)
        self._owner = Supervisor(log=self._folder / "supervisor.log")
        try:
            self._server.start(START_TIMEOUT)
        except BaseException:
            self._owner.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._owner is not None:
            self._owner.close()

    def _launch(self, ports: tuple[int, ...]) -> Process:
        (port,) = ports
        assert self._owner is not None, "started by __enter__ only"
        events = ["--event-webhook-url", self._webhook_url] if self._webhook_url else []
        options = ["--port", f"{HOST}:{port}", "--quiet", "--keep-alive", "--access-log", str(self.access_log), *events]
        keys = {
            "ROOT_ACCESS_KEY": CREDENTIALS["aws_access_key_id"],
            "ROOT_SECRET_KEY": CREDENTIALS["aws_secret_access_key"],
            "NO_PROXY": HOST,
        }
        command = [str(versitygw_program()), *options, "posix", str(self._folder / "data")]
        return self._owner.start(NAME, command, log=self._server.log, cwd=self._folder, env=os.environ | keys)
