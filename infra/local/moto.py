"""The S3 and SQS server of the embedded stack: moto in a process of its own."""

from __future__ import annotations

import http.client
import importlib.util
import os
import sys
from typing import TYPE_CHECKING

from infra.local.errors import LocalStackError
from infra.local.ports import HOST
from infra.local.server import START_TIMEOUT, Server

if TYPE_CHECKING:
    import threading
    from datetime import timedelta
    from pathlib import Path

    from infra.local.process import Process, Supervisor

ASK_SECONDS = 5.0


class Moto:
    """S3 and SQS at one endpoint. All data is in memory: `stop` loses buckets, objects, queues and notifications.

    One thread per connection: parallel requests are answered correctly, conditional puts of one key among them, but not
    faster than one after the other (130 requests a second on two cores).
    """

    def __init__(self, *, folder: Path, log: Path, owner: Supervisor, abort: threading.Event) -> None:
        """`folder`: its temporary files. `abort`: set it to end every wait."""
        self.log = log
        self._folder = folder
        self._owner = owner
        self._server = Server(
            name="moto", log=log, port_count=1, launch=self._launch, answers=self._answers, abort=abort
        )

    @property
    def name(self) -> str:
        return self._server.name

    @property
    def endpoint_url(self) -> str:
        """`endpoint_url` for S3 and SQS clients. Fixed by the first start; raises LocalStackError before it."""
        return f"http://{self._server.address}"

    def start(self, timeout: timedelta = START_TIMEOUT) -> None:
        """Start moto, empty, on the port of the first start; it answers when this returns. No error if it runs."""
        self._server.start(timeout)

    def stop(self) -> None:
        """End it; all its data is lost. No error if it does not run."""
        self._server.stop()

    def freeze(self) -> None:
        """SIGSTOP: requests hang until `thaw`. Keeps all data."""
        self._server.freeze()

    def thaw(self) -> None:
        """SIGCONT."""
        self._server.thaw()

    def restore(self) -> None:
        """Thaw or start it, if it was frozen or stopped."""
        self._server.restore()

    def check(self) -> None:
        """Raises LocalStackError if it should run and has died."""
        self._server.check()

    def _launch(self, ports: tuple[int, ...]) -> Process:
        (port,) = ports
        if importlib.util.find_spec("moto") is None:
            raise LocalStackError("moto is not installed: pip install 'kafka-segment-replicator[local]'")
        self._folder.mkdir(parents=True, exist_ok=True)
        self.log.parent.mkdir(parents=True, exist_ok=True)
        # moto keeps large objects in (unlinked) temporary files
        env = {**os.environ, "TMPDIR": str(self._folder), "MOTO_PORT": str(port), "PYTHONUNBUFFERED": "1"}
        command = [sys.executable, "-P", "-m", "moto.server", "-H", HOST, "-p", str(port)]
        return self._owner.start(self.name, command, log=self.log, cwd=self._folder, env=env)

    def _answers(self) -> bool:
        if "Running on http" not in self._server.logged():  # then another process answers on its port
            return False
        connection = http.client.HTTPConnection(HOST, self._server.port, timeout=ASK_SECONDS)
        try:
            connection.request("GET", "/moto-api/data.json")
            response = connection.getresponse()
            response.read()
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()
        return response.status == http.client.OK
