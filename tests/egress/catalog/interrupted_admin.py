"""A cluster to which something happens between the questions about its topics."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from infra.contracts.catalog import TopicShape
from tests.fakes.kafka_catalog import FakeCatalogAdmin


@dataclass(slots=True)
class InterruptedAdmin(FakeCatalogAdmin):
    """`meanwhile` happens once, after the topics were described and before the next question."""

    meanwhile: Callable[[], None] = lambda: None

    def shapes(self, names: Collection[str]) -> Mapping[str, TopicShape]:
        found = FakeCatalogAdmin.shapes(self, names)
        meanwhile, self.meanwhile = self.meanwhile, lambda: None
        meanwhile()
        return found
