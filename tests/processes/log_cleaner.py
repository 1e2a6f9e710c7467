"""The log cleaner of a broker, made to work all the time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its stubs hide what it documents
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from tests.processes.harness import ASK_SECONDS

BROKER = "1"  # the only one


@contextmanager
def quick_cleaner(bootstrap: str) -> Iterator[None]:
    """The broker checks for something to compact all the time, not every 15 seconds."""
    _configure(bootstrap, ConfigEntry("log.cleaner.backoff.ms", "200", incremental_operation=AlterConfigOpType.SET))
    try:
        yield
    finally:
        _configure(bootstrap, ConfigEntry("log.cleaner.backoff.ms", "", incremental_operation=AlterConfigOpType.DELETE))


def _configure(bootstrap: str, *entries: ConfigEntry) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    resource = ConfigResource(ResourceType.BROKER, BROKER, incremental_configs=list(entries))
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(ASK_SECONDS)
