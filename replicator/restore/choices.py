"""What `replicator restore` offers as values of options. Here, since `--help` shows them and loads nothing else."""

from __future__ import annotations

from enum import StrEnum


class ConfigMode(StrEnum):
    """Which configs a destination is created with: `replicator.restore.creation`."""

    TARGET = "target"
    ARCHIVE = "archive"
    NONE = "none"


class AclSource(StrEnum):
    """Where a destination's ACLs are from: `replicator.restore.acl_restore`."""

    NONE = "none"
    ARCHIVE = "archive"
