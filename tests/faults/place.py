"""The stack that faults happen on: sessions and transactions of a second or two, and a proxy before each broker.

product ──> Wire ──> broker <── traffic, judge
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass

from infra.local.ports import free_ports
from infra.local.stack import LocalStack
from tests.faults.wire import HOST, Wire

REGIONS = ("a", "b")
BROKER: Mapping[str, str] = {
    "group.consumer.session.timeout.ms": "1500",
    "group.consumer.heartbeat.interval.ms": "300",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "300",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "num.network.threads": "1",  # fewer that poll for work while there is none
    "num.io.threads": "3",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What a site needs."""

    stack: LocalStack
    wires: Mapping[str, Wire]  # by region

    def bootstrap(self, region: str) -> Mapping[str, str]:
        """`[kafka]` of a process that reaches its broker through the proxy."""
        return {"bootstrap.servers": f"{HOST}:{self.wires[region].port}"}

    def restore(self) -> None:
        for wire in self.wires.values():
            wire.heal()
        self.stack.restore()


@contextmanager
def place(run: Callable[..., AbstractContextManager[LocalStack]] = LocalStack) -> Iterator[Place]:
    with ExitStack() as around:
        ports = dict(zip(REGIONS, free_ports(len(REGIONS)), strict=True))
        wires = {region: around.enter_context(Wire(port)) for region, port in ports.items()}
        proxy_ports = {region: (ports[region], wires[region].port) for region in REGIONS}
        stack = around.enter_context(run(regions=REGIONS, broker_config=BROKER, proxy_ports=proxy_ports))
        yield Place(stack=stack, wires=wires)
