"""What the rows of `bench.field` share: both versions, their surroundings, and how a program of one of them runs."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench import child
from bench.child import ChildFailed, Measurement
from bench.earlier import Contender
from bench.fidelity import PartitionDigests
from bench.field_plan import PROGRAMS, FieldPlan
from bench.resources import BenchResources
from bench.server_log import ServerLog, VersityLog
from infra.contracts.storage import ObjectStore

TIMEOUT_SECONDS = 900.0


@dataclass(slots=True)
class FieldSuite:
    place: BenchResources
    plan: FieldPlan
    server: str
    contenders: tuple[Contender, ...]  # this version first
    folder: Path
    objects: ObjectStore  # where the archives are
    log: ServerLog | VersityLog
    profiler: Callable[[Path], Sequence[str]] | None = None  # its command, for a file of its own beside each log
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def order(self, number: int) -> tuple[Contender, ...]:
        """Of the versions in a round: they take turns."""
        return self.contenders if number % 2 == 0 else self.contenders[::-1]

    def child(
        self, contender: Contender, module: str, what: str, spec: Mapping[str, object], *, before: str = ""
    ) -> Measurement:
        log = self.folder / f"{next(self._numbers):03d}-{module.removeprefix('bench.')}-{what}.log"
        since = self.log.position()
        result = child.run(
            module,
            what,
            {**spec, "timeout_seconds": TIMEOUT_SECONDS},
            log=log,
            timeout_seconds=TIMEOUT_SECONDS + 60,
            python=contender.python,
            folder=contender.folder,
            under=self.profiler(log) if self.profiler is not None and what in PROGRAMS else (),  # floors are not
            before=before,
        )
        result.other["requests"] = self.log.requests(self.place.bucket, since)
        return result


def same(name: str, found: PartitionDigests, wanted: PartitionDigests) -> None:
    """Raises ChildFailed when what a program wrote is not what was sent."""
    if found != wanted:
        wrong = [p for p in sorted(wanted) if found.get(p) != wanted[p]]
        raise ChildFailed(f"{name}: partitions {wrong} are not what was sent: {found} instead of {wanted}")
