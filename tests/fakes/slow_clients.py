"""Clients of an HTTP server that never come to the end of their request."""

from __future__ import annotations

import contextlib
import socket
import threading
from contextlib import ExitStack

PATIENCE_S = 20.0
BYTE_EVERY_S = 0.2


class SlowClients:
    """A context manager: so many connections that each send one byte of a request every BYTE_EVERY_S. Those that the
    server ends come again with `reconnect`, until the server is closed."""

    def __init__(self, address: tuple[str, int], count: int, *, reconnect: bool = False) -> None:
        self._address, self._count, self._reconnect = address, count, reconnect
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="slow-clients")
        self.began = threading.Event()

    def __enter__(self) -> SlowClients:
        self._thread.start()
        assert self.began.wait(PATIENCE_S)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        with contextlib.suppress(ConnectionRefusedError), ExitStack() as opened:
            clients = [opened.enter_context(self._connect()) for _ in range(self._count)]
            self.began.set()
            while not self._stop.wait(BYTE_EVERY_S):
                for one in list(clients):
                    try:
                        one.send(b"x")
                    except OSError:
                        clients.remove(one)
                        if self._reconnect and not self._stop.is_set():
                            clients.append(opened.enter_context(self._connect()))

    def _connect(self) -> socket.socket:
        made = None
        while made is None:
            with contextlib.suppress(ConnectionResetError):  # the server may end it before this call returns
                made = socket.create_connection(self._address, timeout=PATIENCE_S)
        with contextlib.suppress(OSError):  # the server may be faster
            made.sendall(b"GET /metrics HTTP/1.1\r\nX-Slow: ")
        return made
