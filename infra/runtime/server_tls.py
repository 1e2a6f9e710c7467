"""TLS of a server of ours: its certificate and its key, which are read again when their files change."""

from __future__ import annotations

import logging
import socket
import ssl
from datetime import timedelta
from pathlib import Path

from formats.errors import ConfigError
from infra.runtime import log_fields
from infra.runtime.lifecycle import Deadline

CHECK_EVERY = timedelta(seconds=10)

log = logging.getLogger(__name__)


class ServerTls:
    """Use from one thread. A certificate that was renewed holds for connections from then on; files that cannot be read
    any more are logged, and change nothing."""

    def __init__(self, certificate: Path, key: Path, *, check_every: timedelta = CHECK_EVERY) -> None:
        """PEM files: the certificate with those above it, and its key without a password. Raises ConfigError."""
        self._files, self._check_every = (certificate, key), check_every
        try:
            self._context, self._stamp = self._load()
        except (OSError, ValueError) as error:
            raise ConfigError([f"metrics.tls_cert: {self._unfit(error)}"]) from error
        self._next_check = Deadline(check_every)

    def wrap(self, accepted: socket.socket) -> ssl.SSLSocket:
        """The server's end of a connection, before its handshake. Takes `accepted` over."""
        if self._next_check.expired:
            self._next_check = Deadline(self._check_every)
            self._renew()
        return self._context.wrap_socket(accepted, server_side=True, do_handshake_on_connect=False)

    def _renew(self) -> None:
        try:
            if self._stamps() == self._stamp:
                return
            self._context, self._stamp = self._load()
        except (OSError, ValueError) as error:  # one of both may be replaced already: the next check sees both
            log.warning("certificate_not_renewed", extra={log_fields.ERROR: self._unfit(error)})
        else:
            log.info("certificate_renewed", extra={log_fields.PATH: str(self._files[0])})

    def _load(self) -> tuple[ssl.SSLContext, tuple[int, ...]]:
        stamp = self._stamps()
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(*self._files, password=_none)
        return context, stamp

    def _stamps(self) -> tuple[int, ...]:
        return tuple(file.stat().st_mtime_ns for file in self._files)

    def _unfit(self, error: Exception) -> str:
        certificate, key = self._files
        return (
            f"{certificate} with the key {key} cannot be loaded: {error}; both have to be PEM files that this process "
            "may read, and the key needs no password"
        )


def _none() -> str:
    """Called for a key with a password. Without this, the process would ask its terminal."""
    raise ValueError("the key is encrypted")
