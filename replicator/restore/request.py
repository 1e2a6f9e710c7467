"""The request of a restore and the result of its preparation: values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

from replicator.restore.plan import RestorePlan
from replicator.restore.target_options import TargetOptions
from replicator.selection import Selection

if TYPE_CHECKING:
    from infra.spark.driver import SparkSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a restore runs, apart from what it restores."""

    restore_id: str = ""  # the same id resumes the restore; empty: derived from the selection
    keep: Sequence[str] = ()  # names of functions that decide which records are kept
    change: Sequence[str] = ()  # names of functions that change records
    max_rate: int | None = None  # bytes of records per second
    follow: timedelta | None = None  # interval of listings for new segments; None: only what is stored at the start
    spark: SparkSettings | None = None  # None: in this process
    groups: bool = False  # whether consumer groups get the positions that they had at the moment


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreRequest:
    selection: Selection
    target: TargetOptions = field(default_factory=TargetOptions)
    options: Options = field(default_factory=Options)
    dry_run: bool = False  # only report what would be done
    thaw_days: int | None = None  # request archived (Glacier) objects, readable for this many days, and end


@dataclass(frozen=True, slots=True)
class DryRun:
    """Nothing was changed, and nothing will be."""

    plan: RestorePlan


@dataclass(frozen=True, slots=True)
class Thawing:
    """`objects`: number of objects requested. They become readable after some hours, for the same restore."""

    plan: RestorePlan
    objects: int


@dataclass(frozen=True, slots=True)
class Empty:
    """No stored record lies within the selection."""

    plan: RestorePlan


@dataclass(frozen=True, slots=True)
class Refused:
    """The plan has conflicts that are not accepted: nothing was started."""

    plan: RestorePlan


@dataclass(frozen=True, slots=True)
class Ready:
    """The plan can be executed."""

    plan: RestorePlan


Preparation = DryRun | Thawing | Empty | Refused | Ready
