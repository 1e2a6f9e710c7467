"""Services of a test: each runs until the test ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

from infra.runtime.service import Service

PATIENCE = timedelta(seconds=30)


@contextmanager
def running_services() -> Iterator[Callable[[Service], Service]]:
    """A function that starts a service. At the end all are stopped, and then waited for: one that failed raises."""
    services: list[Service] = []

    def start(service: Service) -> Service:
        services.append(service)
        service.start()
        return service

    yield start
    for service in services:
        service.stop()
    for service in services:
        service.join(PATIENCE)
