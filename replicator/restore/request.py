"""What a restore is asked to do, and what came of its preparation: values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

from replicator.restore.plan import RestorePlan
from replicator.restore.planner import TargetOptions
from replicator.selection import Selection

if TYPE_CHECKING:
    from infra.spark.driver import SparkSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a restore goes, apart from what it is about."""

    restore_id: str = ""  # the same one goes on where it stood; empty: the selection's own
    keep: Sequence[str] = ()  # names of functions that say which records stay
    change: Sequence[str] = ()  # names of functions that change them
    max_rate: int | None = None  # bytes of records a second
    follow: timedelta | None = None  # how often to look for new segments; None: what is stored when it begins
    spark: SparkSettings | None = None  # None: in this process


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreRequest:
    selection: Selection
    target: TargetOptions = field(default_factory=TargetOptions)
    options: Options = field(default_factory=Options)
    dry_run: bool = False  # only say what would be done
    thaw_days: int | None = None  # ask for objects that are archived (Glacier), to be readable so long, and end


@dataclass(frozen=True, slots=True)
class DryRun:
    """Nothing was changed, and nothing is to be."""

    plan: RestorePlan


@dataclass(frozen=True, slots=True)
class Thawing:
    """So many objects were asked for: in some hours the same restore reads them."""

    plan: RestorePlan
    objects: int


@dataclass(frozen=True, slots=True)
class Empty:
    """No record that is stored lies within what is asked for."""

    plan: RestorePlan


@dataclass(frozen=True, slots=True)
class Refused:
    """Something speaks against it, as the plan says: nothing was begun."""

    plan: RestorePlan


@dataclass(frozen=True, slots=True)
class Ready:
    """To be carried out."""

    plan: RestorePlan


Preparation = DryRun | Thawing | Empty | Refused | Ready
