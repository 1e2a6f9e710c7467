"""Who may read what a process shows of itself, by the settings of `[metrics]`."""

from __future__ import annotations

from infra.runtime.health_server import BasicPassword, ListenerAccess
from infra.runtime.server_tls import ServerTls
from replicator.config import MetricsSettings


def access_of(settings: MetricsSettings) -> ListenerAccess:
    """Raises ConfigError when the certificate cannot be loaded."""
    tls, password = None, None
    if settings.tls_cert is not None and settings.tls_key is not None:
        tls = ServerTls(settings.tls_cert, settings.tls_key)
    if settings.username is not None and settings.password is not None:
        password = BasicPassword(settings.username, settings.password)
    return ListenerAccess(tls, password)
