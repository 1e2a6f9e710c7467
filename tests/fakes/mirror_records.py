"""Records of MirrorMaker 2's topics in memory: a MirrorRecordLog.

log = FakeMirrorRecords()
log.records["us.checkpoints.internal"]     what is in it, in order
log.fails_after = True                     records are in the topic, and the answer is lost
log.away = {"us.checkpoints.internal"}     reading and writing it raises BrokerUnavailable
log.exists = lambda topic: False           reading and writing it raises TargetError
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from formats.errors import BrokerUnavailable, TargetError


@dataclass(slots=True)
class FakeMirrorRecords:
    records: dict[str, list[tuple[bytes | None, bytes | None]]] = field(default_factory=lambda: defaultdict(list))
    fails_after: bool = False
    away: set[str] = field(default_factory=set)
    exists: Callable[[str], bool] = lambda _: True

    def read(self, topic: str) -> Sequence[tuple[bytes | None, bytes | None]]:
        self._ask(topic)
        return list(self.records[topic])

    def write(self, topic: str, records: Sequence[tuple[bytes, bytes]]) -> None:
        self._ask(topic)
        self.records[topic] += records
        if self.fails_after:
            raise BrokerUnavailable("no answer")

    def close(self) -> None: ...

    def _ask(self, topic: str) -> None:
        if topic in self.away:
            raise BrokerUnavailable(f"{topic}: planned")
        if not self.exists(topic):
            raise TargetError(f"topic {topic} does not exist")
