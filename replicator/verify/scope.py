"""The scope of a verification: the archive alone, or compared with one or two clusters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from formats.segment import Segment, SourcePartition
from replicator.config import Config, IngressSource
from replicator.selection import Selection
from replicator.verify.proven import Proven

ARCHIVE, SOURCE, TARGET, DIRECT = "archive", "source", "target", "direct"

# the report entry of a partition, and the objects proven for it
Found = tuple[Mapping[str, Any], Mapping[Segment, Proven]]


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyScope:
    """`kind`: what is compared; `cluster`: with which cluster, None for ARCHIVE; `source_cluster`: of DIRECT
    only."""

    kind: str
    cluster: Config | None = None
    source_cluster: Config | None = None
    read_again_after: timedelta | None = None
    as_reported: bool = True  # of ARCHIVE: what egress reported as archived an hour ago has to be there

    def __post_init__(self) -> None:
        if (self.kind == ARCHIVE) != (self.cluster is None):
            raise ValueError(f"{self.kind}: {ARCHIVE} has no cluster, all others need one")
        if (self.kind == DIRECT) != (self.source_cluster is not None):
            raise ValueError(f"{self.kind}: two clusters are for {DIRECT}, which needs them")


def copied_as(selection: Selection, source: SourcePartition, cluster: Config) -> str:
    """The name of the topic of `source` in `cluster`: as the selection renames it, else as ingress of that
    configuration delivers it, else unchanged."""
    delivered = _delivered_by(selection, source, cluster)
    if delivered is not None:
        return delivered.destination(source.topic, source.incarnation)
    return selection.renaming(source.topic)


def transform_of(selection: Selection, source: SourcePartition, cluster: Config) -> str:
    """The name of the transform that the records of `source` in `cluster` went through; empty: none, also where the
    selection renames the topic, which is then not what ingress delivers."""
    delivered = _delivered_by(selection, source, cluster)
    return "" if delivered is None else delivered.transform


def lineage_header_of(selection: Selection, source: SourcePartition, cluster: Config) -> str:
    """The name of the header that the records of `source` got in `cluster`; empty: none, as in `transform_of`."""
    delivered = _delivered_by(selection, source, cluster)
    return "" if delivered is None else delivered.lineage_header


def _delivered_by(selection: Selection, source: SourcePartition, cluster: Config) -> IngressSource | None:
    if selection.renaming.decides(source.topic) or cluster.ingress is None:
        return None
    return cluster.ingress.source_of(source.region, source.topic)
