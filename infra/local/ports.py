"""Free TCP ports on the loopback address.

They are below the system's range for outgoing connections. A port of that range can be taken by any client while its
server is down; worse, a client that keeps connecting to a closed port of that range ends up connected to itself.
"""

from __future__ import annotations

import random
import re
import socket
from pathlib import Path

from infra.local.errors import LocalStackError

HOST = "127.0.0.1"
LOWEST_PORT = 15_000
OUTGOING_FROM = 32_768
ATTEMPTS = 1_000
CONNECT_SECONDS = 1.0


def outgoing_from() -> int:
    """First port that the system uses for outgoing connections. If unknown (not Linux), the lowest default of any
    system."""
    try:
        return int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        return OUTGOING_FROM


def is_free(port: int) -> bool:
    """Whether a server could listen on `port` now. Another process may take it right after."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
            probe.listen(1)
        except OSError:
            return False
    return True


def listens(port: int) -> bool:
    """Whether a server listens on `port`. Has no side effect, unlike `is_free`, which takes the port for a moment."""
    with socket.socket() as probe:
        probe.settimeout(CONNECT_SECONDS)
        return probe.connect_ex((HOST, port)) == 0


def free_ports(count: int) -> tuple[int, ...]:
    """`count` different ports that are free now. The caller starts its server at once, and calls this again if another
    process was faster (`lost_race`)."""
    highest = outgoing_from() - 1
    if highest < LOWEST_PORT + count:  # a system that uses nearly all ports for outgoing connections
        highest = 65_535
    found: set[int] = set()
    for _ in range(ATTEMPTS):
        if len(found) == count:
            return tuple(found)
        port = random.randint(LOWEST_PORT, highest)
        if port not in found and is_free(port):
            found.add(port)
    raise LocalStackError(
        f"no {count} free TCP ports on {HOST} in {LOWEST_PORT}-{highest} after {ATTEMPTS} tries: "
        "end the processes that listen there (ss -ltn lists them)"
    )


_IN_USE = re.compile(r"address already in use|port \d+ is in use", re.IGNORECASE)


def lost_race(log_text: str) -> bool:
    """Whether a server's log shows that its port was taken."""
    return _IN_USE.search(log_text) is not None
