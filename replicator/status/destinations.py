"""How far the destinations of this cluster are from what the catalogues of the source regions say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class DestinationsStatus:
    """`changed_at`: when the catalogue in force was written, by region, which is when the source last changed: an
    unchanged one is not written again."""

    changed_at: Mapping[str, datetime] = field(default_factory=dict)
    without_catalog: tuple[str, ...] = ()  # regions of which none has arrived
    changes: int = 0  # that ingress has yet to make
    differences: tuple[str, ...] = ()  # that are left as they are, with the reason
    refused: Mapping[str, str] = field(default_factory=dict)  # topic, ACLs or region → what went wrong, and the remedy
    unknown: str = ""  # why nothing could be compared

    @property
    def problems(self) -> list[str]:
        found = [f"{subject}: {why}" for subject, why in sorted(self.refused.items())]
        return [*found, *([f"destinations are not compared: {self.unknown}"] if self.unknown else [])]
