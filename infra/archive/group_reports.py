"""The consumer groups of source regions, as far as their snapshots arrived in this bucket."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from formats.control.group_snapshot import GroupSnapshot
from formats.control.keys import groups_prefix
from infra.archive.generations import Generations
from infra.archive.last_good import LastGood, groups_in
from infra.archive.source_reports import SourceHeartbeats
from infra.contracts.storage import ObjectStore


@dataclass(frozen=True, slots=True)
class GroupReport:
    """Of one region."""

    snapshot: GroupSnapshot
    generation: int
    as_of: datetime  # when these were last known to be the offsets of the source's groups, but for those that
    # have a time of their own; an egress writes no snapshot while nothing changes, and its heartbeats say so
    is_newest: bool = True  # False: there is a newer snapshot, which cannot be read

    def as_of_group(self, group_id: str) -> datetime:
        """The same for one group of the snapshot. Raises KeyError."""
        return self.snapshot.groups[group_id].as_of or self.as_of


@dataclass(slots=True)
class GroupReports:
    """Use from one thread at a time."""

    objects: ObjectStore
    prefix: str
    _snapshots: LastGood[GroupSnapshot] = field(init=False)
    _heartbeats: SourceHeartbeats = field(init=False)

    def __post_init__(self) -> None:
        self._snapshots = groups_in(self.objects, self.prefix)
        self._heartbeats = SourceHeartbeats(self.objects, self.prefix)

    def refresh(self, regions: Collection[str]) -> Mapping[str, GroupReport]:
        """Of each region that has a snapshot. Two LISTs for each region, and a GET for each of snapshot and heartbeat
        that is new. Raises StoreUnavailable."""
        found: dict[str, GroupReport] = {}
        snapshots = self._snapshots.refresh(regions)
        for region, beat in self._heartbeats.refresh(regions).items():
            if (snapshot := snapshots.get(region)) is not None:
                number = self._snapshots.number(region)
                confirmed = None if beat is None or beat.groups != number else beat.groups_at
                as_of = max(snapshot.observed_at, confirmed or snapshot.observed_at)
                found[region] = GroupReport(snapshot, number, as_of, is_newest=region not in self.problems)
        return found

    def is_still_newest(self, region: str, report: GroupReport) -> bool:
        """Whether no snapshot was stored after it, by one LIST. Raises StoreUnavailable."""
        if not report.is_newest:
            return False
        return Generations(self.objects, groups_prefix(self.prefix, region)).newest(report.generation) == (
            report.generation
        )

    @property
    def problems(self) -> Mapping[str, str]:
        """Why the newest snapshot of a region does not count."""
        return self._snapshots.problems
