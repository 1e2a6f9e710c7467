"""Services of a test: each runs until its block or the test ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

from infra.runtime.service import Service

PATIENCE = timedelta(seconds=30)


@contextmanager
def running(service: Service) -> Iterator[None]:
    """Until the block ends, however it does. A service that failed raises then."""
    service.start()
    try:
        yield
    finally:
        service.stop()
        service.join(PATIENCE)


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
