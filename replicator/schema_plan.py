"""What has to be registered so that a registry resolves the ids of another one. Pure: two snapshots in, a plan out.

Nothing is registered while there is a conflict: records carry ids, so a registry that resolves only some of them to the
right schema is worse than one that resolves none. Some registries refuse a schema that they have with another id: those
are registered first, so that nothing follows a refusal.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from formats.control.schemas import Schema, SchemaReference, SchemaSnapshot, SubjectVersion


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaPlan:
    register: Sequence[SubjectVersion] = ()  # what is referred to comes before what refers to it
    delete: Sequence[SubjectVersion] = ()  # softly, after that; what refers to another one before that one
    compatibility: str = ""  # for the whole registry; empty: stays
    subject_compatibility: Mapping[str, str] = field(default_factory=dict)
    present: int = 0  # versions that are there already, as they should be
    conflicts: Sequence[str] = ()
    left: Sequence[str] = ()  # differences that are left as they are

    @property
    def is_empty(self) -> bool:
        return not (self.register or self.delete or self.compatibility or self.subject_compatibility)


def plan_schemas(source: SchemaSnapshot, target: SchemaSnapshot) -> SchemaPlan:
    """`target`: what the registry holds that the schemas of `source` are restored into."""
    there = {(one.subject, one.version): one for one in target.versions}
    conflicts = [*_taken_ids(source, target)]
    register: list[SubjectVersion] = []
    delete: list[SubjectVersion] = []
    present = 0
    for one in source.versions:
        found = there.get((one.subject, one.version))
        if found is None:
            register.append(one)
        elif found.id != one.id:
            conflicts.append(
                f"{one.subject} version {one.version} has id {found.id} there, and {one.id} in the archive"
            )
            continue
        else:
            present += 1
        if one.is_deleted and (found is None or not found.is_deleted):
            delete.append(one)
    left = [*_left(source, target, there)]
    ids = {schema: number for number, schema in sorted(target.schemas.items(), reverse=True)}  # the lowest of each
    second_ids = {
        one: ids[schema]
        for one in register
        if (schema := source.schemas[one.id]) in ids and target.schemas.get(one.id) != schema
    }
    left += [
        f"the schema of {one.subject} version {one.version} is there with id {found}; with id {one.id} it is "
        "registered first, since some registries refuse that"
        for one, found in sorted(second_ids.items())
    ]
    ordered, unresolved = _in_order(register, second_ids.keys(), source, target)
    conflicts += unresolved
    level = source.compatibility if source.compatibility != target.compatibility else ""
    if level and target.versions:
        left.append(
            f"the registry's compatibility is {target.compatibility} there, and {level} in the archive; it holds "
            "schemas, so it stays"
        )
        level = ""
    levels = {
        subject: own
        for subject, own in source.subject_compatibility.items()
        if target.subject_compatibility.get(subject) != own
    }
    return SchemaPlan(
        register=ordered,
        delete=_referring_first(delete, source),
        compatibility=level,
        subject_compatibility=levels,
        present=present,
        conflicts=conflicts,
        left=left,
    )


def _taken_ids(source: SchemaSnapshot, target: SchemaSnapshot) -> Iterator[str]:
    for number, schema in sorted(source.schemas.items()):
        other = target.schemas.get(number)
        if other is not None and other != schema:
            where = ", ".join(sorted({one.subject for one in target.versions if one.id == number}))
            yield f"id {number} is another schema there, of {where}: records of the archive would be read with that one"


def _left(
    source: SchemaSnapshot, target: SchemaSnapshot, there: Mapping[tuple[str, int], SubjectVersion]
) -> Iterator[str]:
    wanted = {(one.subject, one.version): one for one in source.versions}
    for key, one in sorted(there.items()):
        if one.subject in source.subjects and key not in wanted:
            yield f"{one.subject} version {one.version} is there only"
        elif key in wanted and one.is_deleted and not wanted[key].is_deleted:
            yield f"{one.subject} version {one.version} is soft-deleted there, and not in the archive; its id resolves"
    for subject in sorted(
        target.subject_compatibility.keys() & (source.subjects - source.subject_compatibility.keys())
    ):
        yield f"{subject} has a compatibility of its own there ({target.subject_compatibility[subject]})"


def _in_order(
    register: Sequence[SubjectVersion],
    first: Collection[SubjectVersion],
    source: SchemaSnapshot,
    target: SchemaSnapshot,
) -> tuple[Sequence[SubjectVersion], Sequence[str]]:
    """What is referred to first, then `first` with what these refer to, else by id; and the references that lead
    nowhere, or in a circle."""
    resolved = {(one.subject, one.version) for one in target.versions}
    by_name = {(one.subject, one.version): one for one in register}
    early, wanted = set[SubjectVersion](), list(first)
    while wanted:
        one = wanted.pop()
        early.add(one)
        references = (by_name.get((each.subject, each.version)) for each in source.schemas[one.id].references)
        wanted += [each for each in references if each is not None and each not in early]
    waiting = sorted(early, key=lambda one: (one.id, one))
    begun, unresolved = _resolved_in_order(waiting, source, resolved)
    rest = sorted(set(register) - early, key=lambda one: (one.id, one))
    ordered, left = _resolved_in_order(rest, source, resolved)
    return [*begun, *ordered], [*unresolved, *left]


def _resolved_in_order(
    waiting: Sequence[SubjectVersion], source: SchemaSnapshot, resolved: set[tuple[str, int]]
) -> tuple[Sequence[SubjectVersion], Sequence[str]]:
    """`resolved`: grows by what is in order."""
    ordered: list[SubjectVersion] = []
    while waiting:
        ready = [one for one in waiting if not _missing(source.schemas[one.id], resolved)]
        if not ready:
            return ordered, [_unresolved(one, source.schemas[one.id], resolved) for one in waiting]
        ordered += ready
        resolved |= {(one.subject, one.version) for one in ready}
        waiting = [one for one in waiting if (one.subject, one.version) not in resolved]
    return ordered, []


def _referring_first(delete: Sequence[SubjectVersion], source: SchemaSnapshot) -> Sequence[SubjectVersion]:
    """A registry deletes no version that another one refers to, which is not deleted itself."""
    waiting, ordered = list(delete), list[SubjectVersion]()
    while waiting:
        wanted = {(one.subject, one.version) for v in waiting for one in source.schemas[v.id].references}
        free = [one for one in waiting if (one.subject, one.version) not in wanted]
        free = free or waiting  # a circle, which no registry has
        ordered += free
        waiting = [one for one in waiting if one not in free]
    return ordered


def _missing(schema: Schema, resolved: set[tuple[str, int]]) -> Sequence[SchemaReference]:
    return [one for one in schema.references if (one.subject, one.version) not in resolved]


def _unresolved(one: SubjectVersion, schema: Schema, resolved: set[tuple[str, int]]) -> str:
    refers = ", ".join(f"{missing.subject} version {missing.version}" for missing in _missing(schema, resolved))
    return f"{one.subject} version {one.version} refers to {refers}, which neither the archive nor the registry has"
