"""The control objects of an archive, by kind; `formats.control.keys` has their keys."""

from __future__ import annotations

from dataclasses import dataclass

from infra.archive.begins import BeginStore
from infra.archive.claims import ClaimStore
from infra.archive.forks import ForkStore
from infra.archive.gaps import GapStore
from infra.archive.lease import LeaseStore
from infra.archive.quarantine import QuarantineStore
from infra.contracts.storage import ObjectStore


@dataclass(frozen=True, slots=True)
class ControlStore:
    """As thread safe as `objects`."""

    objects: ObjectStore
    prefix: str

    @property
    def claims(self) -> ClaimStore:
        return ClaimStore(self.objects, self.prefix)

    @property
    def begins(self) -> BeginStore:
        return BeginStore(self.objects, self.prefix)

    @property
    def forks(self) -> ForkStore:
        return ForkStore(self.objects, self.prefix)

    @property
    def gaps(self) -> GapStore:
        return GapStore(self.objects, self.prefix)

    @property
    def quarantine(self) -> QuarantineStore:
        return QuarantineStore(self.objects, self.prefix)

    @property
    def leases(self) -> LeaseStore:
        return LeaseStore(self.objects, self.prefix)
