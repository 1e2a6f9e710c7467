"""The catalogues of source regions, as far as they arrived in this bucket: the last good generation stays in force.

A generation that is damaged, or of a newer program, is reported once and changes nothing: what was known before it
still counts. At the start of a process nothing is known, and a few generations below the newest are tried.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from formats.control.catalog import Catalog, decode_catalog
from formats.control.keys import catalog_prefix
from formats.errors import MalformedEvent, SegmentNotFound
from infra.archive.generations import Generations
from infra.contracts.storage import ObjectStore
from infra.runtime import log_fields

log = logging.getLogger(__name__)

TRIED = 5  # generations, at the start of a process


@dataclass(slots=True)
class _Known:
    newest: int = 0  # highest number that was seen
    catalog: Catalog | None = None  # the last good generation
    problem: str = ""  # why a newer one does not count


@dataclass(slots=True)
class Catalogs:
    """Use from one thread at a time."""

    objects: ObjectStore
    prefix: str
    _known: dict[str, _Known] = field(default_factory=dict)  # by region

    def refresh(self, regions: Collection[str]) -> Mapping[str, Catalog]:
        """The catalogue in force of each region that has one: one LIST for each region, and one GET when there is a new
        generation. Raises StoreUnavailable; what was known before stays then."""
        for region in regions:
            self._refresh(region, self._known.setdefault(region, _Known()))
        return {region: known.catalog for region in regions if (known := self._known[region]).catalog is not None}

    @property
    def problems(self) -> Mapping[str, str]:
        """Why the newest generation of a region does not count."""
        return {region: known.problem for region, known in self._known.items() if known.problem}

    def _refresh(self, region: str, known: _Known) -> None:
        generations = Generations(self.objects, catalog_prefix(self.prefix, region))
        newest = generations.newest(known.newest)
        if newest == known.newest:
            return
        lowest = known.newest if known.catalog is not None and newest > known.newest else newest - TRIED
        problem = ""
        for number in range(newest, max(lowest, 0), -1):
            if number <= newest - TRIED:
                break
            try:
                catalog = decode_catalog(generations.read(number))
            except SegmentNotFound:
                continue  # thinned
            except MalformedEvent as error:
                problem = problem or f"{generations.key(number)}: {error}"
                continue
            known.catalog = catalog
            break
        if problem:
            problem = (
                f"the newest catalogue of {region} cannot be read, the last good one stays in force: {problem}. Copy "
                "the object again, or upgrade this program if the source's is newer"
            )
            log.warning("catalog_not_readable", extra={log_fields.REGION: region, log_fields.ERROR: problem})
        known.newest, known.problem = newest, problem
