"""What a schema registry has now. A version never changes, so only those that are new are read whole.

A subject that was deleted for good begins again with version 1, under the same name, and so do its last versions: so
its last version and the last that is known are read, and all of them when one of these is another one. What that does
not show, another version before an equal last one, is read after WHOLE_EVERY, when everything is.

A registry lists the subjects of all of its contexts, and an id is another schema in each: only those of the default one
are taken.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from formats.control.schemas import Schema, SchemaSnapshot, SubjectVersion
from formats.errors import RegistryRefused
from infra.contracts.schema_registry import SchemaReader

WHOLE_EVERY = timedelta(hours=1)
SHOWN = 5  # versions in one message
_Versions = Mapping[int, tuple[int, Schema]]
"""By version: the id and the schema."""
OTHER_CONTEXT = ":."
"""Begins the subjects of all contexts but the default one: `:.name:subject`."""


@dataclass(slots=True)
class SchemaObserver:
    """Blocks: use from a thread of its own. `whole_at`: when all versions were read, at the start and every
    WHOLE_EVERY."""

    registry: SchemaReader
    writer: str
    whole_at: datetime | None = None

    def observe(self, before: SchemaSnapshot | None, now: datetime) -> SchemaSnapshot:
        """`before`: the generation that this one follows. Raises RegistryUnavailable, and RegistryRefused when schemas
        may not be read. A version that is listed and not shown is left out and named: it is deleted for good
        meanwhile, or the registry hides it. What it hides since it is soft-deleted stays as it was before."""
        is_whole = self.whole_at is None or now >= self.whole_at + WHOLE_EVERY
        known_before = _by_subject(before)
        known = {} if is_whole else known_before
        schemas: dict[int, Schema] = {}
        versions: list[SubjectVersion] = []
        hidden: list[tuple[str, int]] = []
        # those with deleted ones first: what is registered between two requests is visible then, not deleted
        subjects = frozenset(self.registry.subjects(deleted=True))
        visible = frozenset(self.registry.subjects(deleted=False))
        subjects |= visible
        for subject in sorted(one for one in subjects if not one.startswith(OTHER_CONTEXT)):
            listed = self.registry.versions(subject, deleted=True)
            shown = (
                frozenset(self.registry.versions(subject, deleted=False)) if subject in visible else frozenset[int]()
            )
            numbers = sorted({*listed, *shown})
            found = self._read(subject, numbers, known.get(subject, {}))
            hidden += ((subject, version) for version in numbers if version not in found)
            for version, (number, schema) in found.items():
                schemas[number] = schema
                gone = version not in shown
                versions.append(SubjectVersion(subject=subject, version=version, id=number, is_deleted=gone))
        unread: list[str] = []
        for subject, version in hidden:
            one = None if subject in visible else known_before.get(subject, {}).get(version)
            # records carry its id as long as they live; another schema has it only where the registry began anew
            if one is None or schemas.setdefault(*one) != one[1]:
                unread.append(f"{subject} {version}")
            else:
                versions.append(SubjectVersion(subject=subject, version=version, id=one[0], is_deleted=True))
        levels, problems = self._levels({one.subject for one in versions})
        if unread:
            problems = {**problems, "versions": _not_shown(unread)}
        if is_whole:
            self.whole_at = now
        return SchemaSnapshot(
            writer=self.writer,
            observed_at=now,
            schemas=schemas,
            versions=tuple(sorted(versions)),
            compatibility=levels.pop("", ""),
            subject_compatibility=levels,
            problems=problems,
        )

    def _read(self, subject: str, numbers: Sequence[int], known: _Versions) -> _Versions:
        """Every version of a subject, in order. `numbers`: those that the registry lists; `known`: as they were
        before."""
        if not numbers:
            return {}
        newest = max(known, default=numbers[-1])
        again = {version: self.registry.version(subject, version) for version in sorted({numbers[-1], newest})}
        if any(known.get(version, one) != one for version, one in again.items()):
            known = {}
        found: dict[int, tuple[int, Schema]] = {}
        for version in numbers:
            one = again[version] if version in again else known.get(version) or self.registry.version(subject, version)
            if one is not None:
                found[version] = one
        return found

    def _levels(self, subjects: set[str]) -> tuple[dict[str, str], Mapping[str, str]]:
        """Compatibility levels by subject, of the registry at the empty name; and why they are not known."""
        try:
            found = {subject: self.registry.compatibility(subject) for subject in sorted(subjects)}
            found[""] = self.registry.compatibility()
        except RegistryRefused as error:
            return {}, {"compatibility": str(error)}
        return {subject: level for subject, level in found.items() if level is not None}, {}


def _not_shown(versions: Sequence[str]) -> str:
    """Some registries do not show the versions of a subject that is soft-deleted."""
    more = f" and {len(versions) - SHOWN} more" if len(versions) > SHOWN else ""
    return (
        f"{', '.join(versions[:SHOWN])}{more}: the registry lists them and does not show them; a record that carries "
        "such an id cannot be read at a target"
    )


def _by_subject(before: SchemaSnapshot | None) -> Mapping[str, _Versions]:
    found: dict[str, dict[int, tuple[int, Schema]]] = {}
    if before is None:
        return found
    for one in before.versions:
        found.setdefault(one.subject, {})[one.version] = one.id, before.schemas[one.id]
    return found
