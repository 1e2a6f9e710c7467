"""Control objects of source regions, as far as they arrived in this bucket: the last good generation stays in force.

A generation that is damaged, or of a newer program, is reported once and changes nothing: what was known before it
still counts. At the start of a process nothing is known, and a few generations below the newest are tried.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Generic, TypeVar

from formats.control.catalog import Catalog, decode_catalog
from formats.control.group_snapshot import GroupSnapshot, decode_group_snapshot
from formats.control.keys import catalog_prefix, groups_prefix, schemas_prefix, watermarks_prefix
from formats.control.schemas import SchemaSnapshot, decode_schemas
from formats.control.watermarks import SourceWatermarks, decode_watermarks
from formats.errors import OF_ONE_OBJECT, DataError, SegmentNotFound, StoreRefused
from infra.archive.generations import Generations
from infra.contracts.storage import ObjectStore
from infra.runtime import log_fields

log = logging.getLogger(__name__)

T = TypeVar("T")
TRIED = 5  # generations, at the start of a process


@dataclass(slots=True)
class _Known(Generic[T]):
    newest: int = 0  # highest number that was seen
    value: T | None = None  # of the last good generation
    number: int = 0  # its number
    problem: str = ""  # why a newer one does not count


@dataclass(slots=True)
class LastGood(Generic[T]):
    """Use from one thread at a time."""

    objects: ObjectStore
    prefix_of: Callable[[str], str]  # of a region's generations
    decode: Callable[[bytes], T]
    what: str  # for people
    _known: dict[str, _Known[T]] = field(default_factory=dict)  # by region

    def refresh(self, regions: Collection[str]) -> Mapping[str, T]:
        """What is in force in each region that has one: one LIST for each region, and one GET when there is a new
        generation. Raises StoreUnavailable; what was known before stays then."""
        found: dict[str, T] = {}
        for region in regions:
            known = self._known.setdefault(region, _Known())
            self._refresh(region, known)
            if known.value is not None:
                found[region] = known.value
        return found

    def in_force(self, regions: Collection[str]) -> Mapping[str, T]:
        """As of the last `refresh`, without a request. Safe to call from any thread."""
        known = {region: one.value for region in regions if (one := self._known.get(region)) is not None}
        return {region: value for region, value in known.items() if value is not None}

    @property
    def problems(self) -> Mapping[str, str]:
        """Why the newest generation of a region does not count."""
        return {region: known.problem for region, known in self._known.items() if known.problem}

    def number(self, region: str) -> int:
        """Of the generation in force; 0: none."""
        known = self._known.get(region)
        return 0 if known is None else known.number

    def _refresh(self, region: str, known: _Known[T]) -> None:
        generations = Generations(self.objects, self.prefix_of(region))
        newest = generations.newest(known.newest)
        if newest == known.newest and not known.problem:  # an object that could not be read may be repaired
            return
        lowest = max(newest - TRIED, known.number if newest >= known.number and known.value is not None else 0)
        problem = ""
        for number in range(newest, lowest, -1):
            try:
                known.value, known.number = self.decode(generations.read(number)), number
            except SegmentNotFound:
                continue  # thinned
            except OF_ONE_OBJECT as error:
                problem = problem or f"{generations.key(number)}: {error}"
                if isinstance(error, DataError | StoreRefused):
                    continue
                # else KMS does not answer: each of the others would wait as long
            break
        if problem:
            problem = (
                f"the newest {self.what} of {region} cannot be read, the last good one stays in force: {problem}. Copy "
                "the object again, upgrade this program if the source's is newer, or give it the key"
            )
        if problem and problem != known.problem:
            log.warning("control_object_not_readable", extra={log_fields.REGION: region, log_fields.ERROR: problem})
        known.newest, known.problem = newest, problem


Catalogs = LastGood[Catalog]


def catalogs_in(objects: ObjectStore, prefix: str) -> Catalogs:
    return LastGood(objects, partial(catalog_prefix, prefix), decode_catalog, "catalogue")


def watermarks_in(objects: ObjectStore, prefix: str) -> LastGood[SourceWatermarks]:
    return LastGood(objects, partial(watermarks_prefix, prefix), decode_watermarks, "watermarks")


def schemas_in(objects: ObjectStore, prefix: str) -> LastGood[SchemaSnapshot]:
    return LastGood(objects, partial(schemas_prefix, prefix), decode_schemas, "schemas")


def groups_in(objects: ObjectStore, prefix: str) -> LastGood[GroupSnapshot]:
    return LastGood(objects, partial(groups_prefix, prefix), decode_group_snapshot, "snapshot of consumer groups")
