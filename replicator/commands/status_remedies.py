"""Commands for a parked partition, as `replicator status` prints them."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from formats.messages.delivery_checkpoint import SEED
from replicator.status.ingress_partition import IngressPartition


def seed_command(partition: IngressPartition, option: Sequence[str]) -> str:
    """The command that seeds a parked partition; empty unless only that lets it continue."""
    if partition.parked is None or not partition.parked.needs_seed or not partition.configured:
        return ""
    return shlex.join([*SEED.split(), str(partition.key.source), "--offset", "N", "--yes", *option])


def release_command(key_of: IngressPartition, option: Sequence[str]) -> str:
    """The command that releases a partition; empty if it has to be seeded instead."""
    if seed_command(key_of, option):
        return ""
    return shlex.join(["replicator", "release", *_where(key_of), "--yes", *option])


def skip_command(key_of: IngressPartition, option: Sequence[str]) -> str:
    """The command that skips a record; empty if there is no offset to skip, or skipping would not help."""
    if key_of.parked is None or key_of.parked.next_offset is None or key_of.parked.blames_target:
        return ""
    offset = str(key_of.parked.next_offset)
    return shlex.join(["replicator", "skip", _where(key_of)[0], offset, *_where(key_of)[1:]]) + (
        f" --reason TEXT --yes{''.join(f' {shlex.quote(o)}' for o in option)}"
    )


def _where(one: IngressPartition) -> list[str]:
    return [str(one.key.source), *([] if one.configured else ["--to", one.key.destination_topic])]
