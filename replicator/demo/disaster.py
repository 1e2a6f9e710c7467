"""The disaster: region a's broker and its disks are lost, and its topic is restored from the bucket.

broker a ✗   bucket a ── replicator restore ──> broker c, new and empty
"""

from __future__ import annotations

import sys
import time
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from infra.local.aws import s3_client
from infra.local.errors import LocalStackError, with_log
from infra.storage.s3 import S3ObjectStore
from replicator.config import load as load_config
from replicator.demo.judge import UNREAD, differences
from replicator.demo.services import SOURCE, environment, selection_of, write_restore_config
from replicator.verify.verify import Verification

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from formats.records.align import StreamRead
    from formats.segment import SourcePartition
    from infra.local.stack import LocalStack
    from replicator.demo.services import Names
    from replicator.verify.verifier import TargetVerdict

NEW = "c"
PATIENCE = timedelta(minutes=10)  # some seconds, on a machine that has nothing else to do


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """`source` was read before the loss; `restored`: the archive compared with the restored topic; `took`: from the
    loss until the last record was readable."""

    source: Mapping[SourcePartition, StreamRead]
    restored: Mapping[SourcePartition, TargetVerdict]
    took: timedelta

    @property
    def records(self) -> int:
        return sum(self._read(partition).count for partition in self.restored)

    @property
    def differences(self) -> tuple[str, ...]:
        return tuple(self._differences())

    def _differences(self) -> Iterator[str]:
        for partition, wanted in self.source.items():
            verdict = self.restored.get(partition)
            what = [verdict.unreadable] if verdict is not None and verdict.unreadable else []
            what += differences(wanted, self._read(partition), ignored="offset")
            yield from (f"partition {partition.partition}: restored: {one}" for one in what)

    def _read(self, partition: SourcePartition) -> StreamRead:
        verdict = self.restored.get(partition)
        return verdict.result.second if verdict is not None and verdict.result is not None else UNREAD


def lose_and_restore(stack: LocalStack, names: Names, source: Mapping[SourcePartition, StreamRead]) -> Recovery:
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
        how = f"ended with {code}"
        if code is None:
            how = f"did not end within {PATIENCE.total_seconds():.0f} s: the machine may be too busy, run it again"
        raise LocalStackError(with_log(f"restore {how}", process.log))
    return Recovery(source=source, restored=_verified(stack, names, source, file), took=took)


def _verified(
    stack: LocalStack, names: Names, source: Mapping[SourcePartition, StreamRead], file: Path
) -> Mapping[SourcePartition, TargetVerdict]:
    config = load_config(file)
    with (
        closing(s3_client(stack.moto.endpoint_url)) as client,
        Verification(config, selection_of(names), objects=S3ObjectStore(client, config.s3.bucket)) as verification,
    ):
        verdicts = verification.each(lambda one: verification.same_as_target(one, config, names.topic), of=source)
        return dict(zip(source, verdicts, strict=True))
