"""The disaster: region a's broker and its disks are lost, and its topic is restored from the bucket.

broker a ✗   bucket a ── replicator restore ──> broker c, new and empty
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from infra.local.errors import LocalStackError, with_log
from replicator.demo.judge import CopyRead, differing, read_topic
from replicator.demo.services import SOURCE, environment, write_restore_config

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from infra.local.stack import LocalStack
    from replicator.demo.services import Names

NEW = "c"
PATIENCE = timedelta(seconds=60)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """`source` was read before the loss, `restored` afterwards; `took`: from the loss until the last record was
    readable."""

    source: Mapping[int, CopyRead]
    restored: Mapping[int, CopyRead]
    took: timedelta

    @property
    def records(self) -> int:
        return sum(side.records for side in self.restored.values())

    @property
    def differences(self) -> tuple[str, ...]:
        return tuple(self._differences())

    def _differences(self) -> Iterator[str]:
        for partition, wanted in self.source.items():
            found = self.restored.get(partition)
            if found is None or found.records != wanted.records:
                restored = found.records if found is not None else 0
                yield f"partition {partition}: restored: {wanted.records - restored:,} record(s) missing"
            elif streams := [s for s in differing(wanted.digest, found.digest) if s != "offset"]:
                yield f"partition {partition}: restored: {', '.join(streams)} differ"


def lose_and_restore(stack: LocalStack, names: Names, source: Mapping[int, CopyRead]) -> Recovery:
    """Delete region a's broker, and restore its topic to a new broker. Raises LocalStackError, with the last lines of
    the log, when the restore fails."""
    stack.brokers[SOURCE].burn()
    began = time.monotonic()
    broker = stack.add_broker(NEW)
    file = write_restore_config(stack.dir, broker=broker.bootstrap, endpoint_url=stack.moto.endpoint_url, names=names)
    command = [sys.executable, "-P", "-m", "replicator", "restore", names.topic, "--config", str(file)]
    process = stack.start("restore", command, env=environment())
    code = process.wait(PATIENCE)
    took = timedelta(seconds=time.monotonic() - began)
    if code != 0:
        how = "did not end" if code is None else f"ended with {code}"
        raise LocalStackError(with_log(f"restore {how}", process.log))
    return Recovery(source=source, restored=read_topic(broker.bootstrap, names.topic, source), took=took)
