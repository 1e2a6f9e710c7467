"""Logs of a command that ends by itself."""

# ruff: noqa: PLC0415  -- `--help` loads no logging of ours

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from replicator.config import Config


def set_up_logs(settings: Config) -> None:
    """Of a command that ends by itself: what somebody at a terminal should know, unless the file says otherwise."""
    from infra.runtime.logs import configure

    configure(settings.log.level or "warning", settings.log.format or "text")
