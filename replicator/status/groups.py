"""The consumer groups of a region, by the newest snapshot of them that is in the bucket."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from infra.archive.group_reports import GroupReport, GroupReports


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupsStatus:
    region: str
    report: GroupReport | None  # None: no snapshot that can be read
    problem: str = ""  # why the newest one does not count

    @property
    def unreadable(self) -> Mapping[str, tuple[str, datetime | None]]:
        """Groups whose offsets cannot be read: why, and as of when they are known; None: they are not."""
        if self.report is None:
            return {}
        report, found = self.report, self.report.snapshot
        return {
            group_id: (why, report.as_of_group(group_id) if group_id in found.groups else None)
            for group_id, why in sorted(found.unreadable.items())
        }

    @property
    def problems(self) -> Sequence[str]:
        """What concerns no single group; of `unreadable` those have the details."""
        if self.report is None:
            return [self.problem] if self.problem else []
        others = {what: why for what, why in self.report.snapshot.problems.items() if what != "groups"}
        return [*filter(None, [self.problem]), *(f"{what}: {why}" for what, why in sorted(others.items()))]

    @property
    def is_troubled(self) -> bool:
        return bool(self.unreadable or self.problems)


def read_groups(reports: GroupReports, regions: Collection[str]) -> Sequence[GroupsStatus]:
    """Of the regions that have a snapshot, or one that cannot be read. Raises StoreUnavailable."""
    found = reports.refresh(regions)
    return [
        GroupsStatus(region=region, report=found.get(region), problem=reports.problems.get(region, ""))
        for region in sorted({*found, *reports.problems})
    ]
