"""The ownership ledger in memory: the records that its topic would have, through the real codec.

ledger = FakeLedger()
ledger.away = True          every call raises BrokerUnavailable
ledger.refuses = "why"      every call raises TargetError
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from formats.errors import BrokerUnavailable, TargetError
from formats.messages.ledger import LedgerEntry, Ownership, acl_key, encode, encode_key, ownership
from formats.policies.acls import AclBinding
from infra.runtime.crash_points import Step, durable


@dataclass(slots=True)
class FakeLedger:
    records: list[tuple[bytes | None, bytes | None]] = field(default_factory=list)
    away: bool = False
    refuses: str = ""
    reads: int = 0

    def read(self) -> Ownership:
        self._ask("read")
        self.reads += 1
        return ownership(self.records)[0]

    def write(self, entries: Sequence[LedgerEntry]) -> None:
        self._ask("write")
        with durable(Step.RECORD_OWNERSHIP):
            self.records += [(encode_key(entry), encode(entry)) for entry in entries]

    def remove_acls(self, bindings: Sequence[AclBinding]) -> None:
        self._ask("write")
        with durable(Step.RECORD_OWNERSHIP):
            self.records += [(acl_key(binding), None) for binding in bindings]

    def close(self) -> None: ...

    def _ask(self, what: str) -> None:
        if self.away:
            raise BrokerUnavailable(f"{what} the ledger: planned")
        if self.refuses:
            raise TargetError(f"{what} the ledger: {self.refuses}")
