"""The `[schema_registry]` section: the registry of this region's schemas."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from infra.settings.field import Problem, enforce, http_url, not_blank, setting


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaRegistrySettings:
    """The registry of this region: egress copies it into the bucket, `replicator schemas restore` writes into it."""

    url: str = field(metadata=setting("REST interface as Confluent's registry has it", check=http_url))
    username: str | None = field(default=None, metadata=setting("for basic authentication", check=not_blank))
    password: str | None = field(
        default=None,
        repr=False,
        metadata=setting("required with username; only as ${ENV}", secret=True, check=not_blank),
    )
    ca_location: Path | None = field(
        default=None, metadata=setting("file of the certificates that are trusted; default: the system's")
    )
    interval: timedelta = field(
        default=timedelta(minutes=5),
        metadata=setting(
            "how often egress checks for changes: 4 requests for each subject, and 3 more", minimum=timedelta(seconds=1)
        ),
    )
    timeout: timedelta = field(
        default=timedelta(seconds=10),
        metadata=setting("how long one request may take", minimum=timedelta(milliseconds=100)),
    )

    def __post_init__(self) -> None:
        enforce(self, self._contradictions())

    def _contradictions(self) -> Iterator[Problem]:
        if self.username is not None and self.password is None:
            yield "username", "needs password; give both, or neither"
        if self.password is not None and self.username is None:
            yield "password", "needs username; give both, or neither"
