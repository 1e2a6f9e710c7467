"""Logging of commands that end by themselves."""

# ruff: noqa: PLC0415  -- `--help` does not load the logging module

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from replicator.config import Config


def set_up_logs(settings: Config | None) -> None:
    """Log warnings as text, for a user at a terminal, unless the configuration says otherwise; None: there is none."""
    from infra.runtime.logs import configure

    level, form = (None, None) if settings is None else (settings.log.level, settings.log.format)
    configure(level or "warning", form or "text")
