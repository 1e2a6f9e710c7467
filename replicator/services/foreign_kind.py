"""The programs that delivery positions are exported to. Here, since `--help` shows them and loads nothing else."""

from __future__ import annotations

from enum import StrEnum


class ForeignKind(StrEnum):
    CONNECT_OFFSETS = "connect-offsets"  # of MirrorMaker 2
    ANCESTOR = "ancestor"  # the Go replicator
