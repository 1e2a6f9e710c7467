"""The archive of a configuration."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

from formats.errors import MalformedKey
from formats.registry import load
from infra.archive.archive import Archive
from infra.contracts.storage import ObjectStore
from infra.runtime.lifecycle import Stop
from replicator.config import Config
from replicator.services.wiring import archive_objects


def archive_in(
    objects: ObjectStore, config: Config, on_malformed: Callable[[MalformedKey], None] = lambda _: None
) -> Archive:
    """The archive in `objects`. Raises ConfigError when its segment format is not installed."""
    return Archive.of(objects, config.s3.prefix, load(config.format, config.format_options), on_malformed=on_malformed)


def open_archive(config: Config, stop: Stop, opened: ExitStack) -> Archive:
    """The archive of `config`. Its clients are closed with `opened`. Raises ConfigError."""
    return archive_in(archive_objects(config, stop, opened), config)
