"""A proxy between Kafka clients and one broker that understands just enough of the protocol to lose chosen answers.

    client ──request──> Wire ──request──> broker      the broker does what it was asked …
    client ─x           Wire <──answer──  broker      … and no client gets it: the connection is cut

The broker has to tell its clients the proxy's address, see `place.py`. Faults hold until they are healed.
"""

from __future__ import annotations

import asyncio
import struct
import threading
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum

HOST = "127.0.0.1"
READ_BYTES = 1 << 16


class Api(IntEnum):
    """Requests that change something, by Kafka's numbers."""

    PRODUCE = 0
    OFFSET_COMMIT = 8
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    CREATE_TOPICS = 19
    INIT_PRODUCER_ID = 22
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    TXN_OFFSET_COMMIT = 28
    CONSUMER_GROUP_HEARTBEAT = 68


@dataclass(frozen=True, slots=True)
class Unanswered:
    """The broker does what these ask for, and the connection ends without an answer."""

    apis: frozenset[Api]


@dataclass(frozen=True, slots=True)
class Silent:
    """Connections stay, and nothing passes."""


@dataclass(frozen=True, slots=True)
class Severed:
    """Every connection is cut, and each new one at once."""


WireFault = Unanswered | Silent | Severed


class Wire:
    """Listens from the beginning; a context manager. Thread safe."""

    def __init__(self, broker_port: int) -> None:
        self._broker_port = broker_port
        self._fault: WireFault | None = None
        self._met = 0
        self._writers: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._open = asyncio.Event()
        self._open.set()
        self._server = self._loop.run_until_complete(asyncio.start_server(self._serve, HOST, 0))
        self.port: int = self._server.sockets[0].getsockname()[1]
        self._thread = threading.Thread(target=self._loop.run_forever, name="wire")
        self._thread.start()

    def break_(self, fault: WireFault) -> None:
        self._call(self._set, fault)

    def heal(self) -> None:
        self._call(self._set, None)

    @property
    def met(self) -> int:
        """How often somebody ran into a fault so far."""
        return self._met

    def close(self) -> None:
        async def end() -> None:
            self._server.close()
            tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(end(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- on the loop's thread

    def _call(self, function: object, *arguments: object) -> None:
        done = threading.Event()

        def call() -> None:
            function(*arguments)  # type: ignore[operator]
            done.set()

        self._loop.call_soon_threadsafe(call)
        done.wait(10)

    def _set(self, fault: WireFault | None) -> None:
        self._fault = fault
        if isinstance(fault, Silent):
            self._open.clear()
        else:
            self._open.set()
        if isinstance(fault, Severed):
            self._met += len(self._writers)
            for writer in self._writers:
                writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream: asyncio.StreamWriter | None = None
        self._writers.add(writer)
        try:
            if isinstance(self._fault, Severed):
                self._met += 1
                return
            answers, upstream = await asyncio.open_connection(HOST, self._broker_port)
            asked: dict[int, int] = {}  # api by correlation id
            both = [
                asyncio.ensure_future(self._requests(reader, upstream, asked)),
                asyncio.ensure_future(self._answers(answers, writer, asked)),
            ]
            try:
                await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in both:
                    task.cancel()
                await asyncio.gather(*both, return_exceptions=True)
        except (OSError, asyncio.CancelledError):
            pass  # a broker that is away, a client that was killed, or the end
        finally:
            self._writers.discard(writer)
            for each in (writer, upstream):
                if each is not None:
                    each.transport.abort()

    async def _requests(
        self, reader: asyncio.StreamReader, upstream: asyncio.StreamWriter, asked: dict[int, int]
    ) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            while True:
                frame = await _frame(reader)
                api, _version, correlation = struct.unpack_from(">hhi", frame, 4)
                asked[correlation] = api
                self._met += not self._open.is_set()
                await self._open.wait()
                upstream.write(frame)
                await upstream.drain()

    async def _answers(
        self, answers: asyncio.StreamReader, writer: asyncio.StreamWriter, asked: dict[int, int]
    ) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            while True:
                frame = await _frame(answers)
                (correlation,) = struct.unpack_from(">i", frame, 4)
                api = asked.pop(correlation, None)
                await self._open.wait()
                if isinstance(self._fault, Unanswered) and api in self._fault.apis:
                    self._met += 1
                    return
                writer.write(frame)
                await writer.drain()


async def _frame(reader: asyncio.StreamReader) -> bytes:
    """A whole message, its length before it."""
    head = await reader.readexactly(4)
    (length,) = struct.unpack(">i", head)
    return head + await reader.readexactly(length)


def apis(*names: Api) -> Unanswered:
    return Unanswered(frozenset(names))


__all__ = ("Api", "Severed", "Silent", "Unanswered", "Wire", "WireFault", "apis")
