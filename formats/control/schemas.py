"""What a schema registry holds, as the egress of its region observed it. One object for each generation.

    schemas    by id: text, type, and the subjects' versions that the text refers to
    versions   of each subject: the id of each version; soft-deleted ones, too, since records still carry their ids

Generations are numbered like the catalogue's (`formats.control.catalog`). The object is gzip'd JSON; a text that
several subjects share is written once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from formats.codec import VERSION, load, malformed, parse_time
from formats.control.packed import pack, unpack

AVRO = "AVRO"
"""The type of a schema that names none."""
_WHAT = "schemas of a registry"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class SchemaReference:
    name: str  # as the text of the schema calls it
    subject: str
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    text: str
    type: str = AVRO
    references: tuple[SchemaReference, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class SubjectVersion:
    subject: str
    version: int
    id: int  # of its schema: what records carry
    is_deleted: bool = False  # softly: hidden, and its id still resolves

    def __post_init__(self) -> None:
        if not self.subject or self.version < 1 or self.id < 0:
            raise ValueError(f"not a version of a subject: {self.subject!r} {self.version}, id {self.id}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaSnapshot:
    writer: str  # the process that observed it
    observed_at: datetime  # UTC; when the observation began
    schemas: Mapping[int, Schema]  # by id
    versions: tuple[SubjectVersion, ...]  # in order
    compatibility: str = ""  # of the registry; empty: not known
    subject_compatibility: Mapping[str, str] = field(default_factory=dict)  # of the subjects that have their own
    problems: Mapping[str, str] = field(default_factory=dict)  # what could not be observed → why, and the remedy

    def __post_init__(self) -> None:
        if lost := {one.id for one in self.versions} - self.schemas.keys():
            raise ValueError(f"versions of schemas that are not there: ids {sorted(lost)[:5]}")

    def has_same_content(self, other: SchemaSnapshot) -> bool:
        """Whether both describe the same registry; the observer and the time may differ."""
        return replace(self, writer="", observed_at=other.observed_at) == replace(other, writer="")

    @property
    def subjects(self) -> frozenset[str]:
        return frozenset(one.subject for one in self.versions)


def encode_schemas(found: SchemaSnapshot) -> bytes:
    return pack(
        {
            "v": VERSION,
            "writer": found.writer,
            "observed_at": found.observed_at.isoformat(),
            "compatibility": found.compatibility,
            "schemas": {str(number): _schema_to_json(one) for number, one in found.schemas.items()},
            "subjects": _subjects_to_json(found),
            "problems": dict(found.problems),
        }
    )


def decode_schemas(data: bytes) -> SchemaSnapshot:
    """Raises MalformedEvent, also for another version."""
    text = unpack(_WHAT, data)
    with malformed(_WHAT, text):
        message = load(text)
        subjects: Mapping[str, Mapping[str, Any]] = message["subjects"]
        return SchemaSnapshot(
            writer=str(message["writer"]),
            observed_at=parse_time(message["observed_at"]),
            schemas={int(number): _schema_from_json(one) for number, one in message["schemas"].items()},
            versions=tuple(
                sorted(
                    SubjectVersion(subject=name, version=int(version), id=int(number), is_deleted=bool(deleted))
                    for name, one in subjects.items()
                    for version, number, deleted in one["versions"]
                )
            ),
            compatibility=str(message["compatibility"]),
            subject_compatibility={
                name: str(one["compatibility"]) for name, one in subjects.items() if "compatibility" in one
            },
            problems={str(what): str(why) for what, why in message["problems"].items()},
        )


def _subjects_to_json(found: SchemaSnapshot) -> Mapping[str, Mapping[str, Any]]:
    subjects: dict[str, dict[str, Any]] = {}
    for one in sorted(found.versions):
        entry = subjects.setdefault(one.subject, {"versions": []})
        entry["versions"].append([one.version, one.id, one.is_deleted])
    for name, level in found.subject_compatibility.items():
        subjects.setdefault(name, {"versions": []})["compatibility"] = level
    return subjects


def _schema_to_json(schema: Schema) -> Mapping[str, Any]:
    message: dict[str, Any] = {"schema": schema.text, "type": schema.type}
    if schema.references:
        message["references"] = [[one.name, one.subject, one.version] for one in schema.references]
    return message


def _schema_from_json(message: Mapping[str, Any]) -> Schema:
    return Schema(
        text=str(message["schema"]),
        type=str(message["type"]),
        references=tuple(
            SchemaReference(name=str(name), subject=str(subject), version=int(version))
            for name, subject, version in message.get("references", ())
        ),
    )
