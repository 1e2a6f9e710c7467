"""Restores the schemas of a source region into a registry, with the same ids.

    bucket ── generation in force ──┐
    registry ── what it holds ──────┴──> plan ──> IMPORT ──> register ──> soft-delete ──> the mode as before

Each write may be repeated, and the plan is made of what the registry holds: after a crash anywhere the same command
goes on. A subject that a crash left in mode IMPORT is set back by the next run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

from egress.catalog.schema_observer import SchemaObserver
from formats.control.schemas import SchemaSnapshot
from formats.errors import RegistryRefused, RegistryUnavailable, TargetError
from infra.archive.last_good import schemas_in
from infra.contracts.schema_registry import IMPORT, READWRITE, SchemaRegistry
from infra.contracts.storage import ObjectStore
from infra.runtime.crash_points import Step, durable
from replicator.schema_plan import SchemaPlan, plan_schemas

HERE = "this command"  # the writer of a snapshot that is not stored


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedSchemas:
    """The generation in force of one source region."""

    snapshot: SchemaSnapshot
    number: int
    problem: str = ""  # why a newer one does not count


def archived_schemas(objects: ObjectStore, prefix: str, region: str) -> ArchivedSchemas:
    """Raises StoreUnavailable, and TargetError when there is none."""
    stored = schemas_in(objects, prefix)
    snapshot = stored.refresh([region]).get(region)
    problem = stored.problems.get(region, "")
    if snapshot is None:
        raise TargetError(
            f"the bucket has no schemas of {region}{f': {problem}' if problem else ''}. Egress of {region} writes them "
            "when its file has a [schema_registry]"
        )
    return ArchivedSchemas(snapshot=snapshot, number=stored.number(region), problem=problem)


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaRestore:
    """Use from one thread. Raises RegistryUnavailable and RegistryRefused."""

    registry: SchemaRegistry
    source: SchemaSnapshot

    def plan(self, now: datetime) -> SchemaPlan:
        """Reads the whole registry: 4 requests for each subject, and one for each version."""
        return plan_schemas(self.source, SchemaObserver(self.registry, HERE).observe(None, now))

    def run(self, plan: SchemaPlan) -> None:
        """Carry out a plan without conflicts. Raises TargetError when it has some."""
        if plan.conflicts:
            raise TargetError("; ".join(plan.conflicts))
        if plan.compatibility:  # first: only a registry without schemas gets it
            self._set_compatibility(plan.compatibility)
        modes = {subject: self.registry.mode(subject) for subject in _subjects(plan)}
        try:
            self._write(plan)
            # before the modes: a subject that is READONLY again takes no level
            for subject, level in sorted(plan.subject_compatibility.items()):
                self._set_compatibility(level, subject)
        except RegistryRefused:  # perhaps for good: no producer can register anything in mode IMPORT
            with suppress(RegistryRefused, RegistryUnavailable):
                self._end_import(modes)
            raise
        self._end_import(modes)

    def _write(self, plan: SchemaPlan) -> None:
        for subject in _subjects(plan):
            self._set_mode(subject, IMPORT)
        for one in plan.register:
            with durable(Step.REGISTER_SCHEMA):
                self.registry.register(one, self.source.schemas[one.id])
        for one in plan.delete:
            with durable(Step.DELETE_SCHEMA):
                self.registry.delete(one)

    def _end_import(self, modes: Mapping[str, str | None]) -> None:
        """Also of subjects of an earlier run that a crash ended. `modes`: those before; an operator may have made a
        subject READONLY."""
        for subject in sorted(self.source.subjects):
            if self.registry.mode(subject) != IMPORT:
                continue
            before = modes.get(subject)
            if before is None or before == IMPORT:
                self._unset_mode(subject)
            else:
                self._set_mode(subject, before)

    def _set_compatibility(self, level: str, subject: str | None = None) -> None:
        with durable(Step.SET_COMPATIBILITY):
            self.registry.set_compatibility(level, subject)

    def _unset_mode(self, subject: str) -> None:
        """Else a registry that is made READONLY, or imports from elsewhere, would go on taking schemas of it."""
        try:
            with durable(Step.SET_SCHEMA_MODE):
                self.registry.unset_mode(subject)
        except RegistryRefused:  # an earlier version
            self._set_mode(subject, READWRITE)

    def _set_mode(self, subject: str, mode: str) -> None:
        with durable(Step.SET_SCHEMA_MODE):
            self.registry.set_mode(subject, mode)


def _subjects(plan: SchemaPlan) -> Sequence[str]:
    return sorted({one.subject for one in plan.register})
