"""A schema registry with the REST interface that Confluent's documents: what is read of it, and what is restored."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from formats.control.schemas import Schema, SubjectVersion

IMPORT, READWRITE = "IMPORT", "READWRITE"
"""Modes of a subject. In IMPORT, a schema is registered with the version and the id that it had elsewhere."""


class SchemaReader(Protocol):
    """Each call raises RegistryUnavailable when it may work later, and RegistryRefused when the registry rejects it."""

    def subjects(self, *, deleted: bool) -> Collection[str]:
        """`deleted`: also those of which every version is soft-deleted."""

    def versions(self, subject: str, *, deleted: bool) -> Collection[int]:
        """`deleted`: also soft-deleted ones. Empty when there is no such subject."""

    def version(self, subject: str, version: int) -> tuple[int, Schema] | None:
        """The id and the schema of a version, also of a soft-deleted one; None: there is no such version."""

    def compatibility(self, subject: str | None = None) -> str | None:
        """The level of a subject, or of the registry; None: the subject has none of its own."""


class SchemaRegistry(SchemaReader, Protocol):
    """As SchemaReader. Each write may be repeated."""

    def schema(self, number: int) -> Schema | None:
        """The schema with an id; None: there is none."""

    def mode(self, subject: str) -> str | None:
        """The subject's own mode; None: it has none."""

    def set_mode(self, subject: str, mode: str) -> None:
        """Also of a subject that has schemas."""

    def unset_mode(self, subject: str) -> None:
        """The mode of the registry is that of the subject again. Raises RegistryRefused, too, when the registry cannot
        do that: an earlier version."""

    def register(self, version: SubjectVersion, schema: Schema) -> None:
        """Register a schema with its version and its id; the subject is in mode IMPORT. Raises RegistryRefused also
        when the registry has given it another id."""

    def delete(self, version: SubjectVersion) -> None:
        """Soft-delete a version."""

    def set_compatibility(self, level: str, subject: str | None = None) -> None: ...
