"""A live screen in a pseudo terminal: what is drawn, which keys are read, and what is left in the end."""

from __future__ import annotations

import os
import struct
import termios
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from fcntl import ioctl

import pytest

from formats.errors import BrokerUnavailable
from infra.local.waiting import wait_until
from infra.runtime.lifecycle import Stop
from replicator.commands.top import watch
from replicator.terminal.live import LiveScreen
from replicator.top.reader import Watching
from replicator.top.snapshot import FlowName, Row, Snapshot
from tests.fakes.surroundings import HandClock

NOW = datetime(2026, 1, 1, tzinfo=UTC)
PATIENCE = timedelta(seconds=30)
NONE = timedelta()
ENTER, LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"


@dataclass
class Terminal:
    """The user's side of a pseudo terminal."""

    user: int
    program: int
    written: bytearray = field(default_factory=bytearray)

    def resize(self, columns: int, lines: int) -> None:
        ioctl(self.program, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def press(self, keys: str) -> None:
        os.write(self.user, keys.encode())

    def read(self) -> None:
        """Take what the program writes, as a terminal does; until it is closed."""
        with suppress(OSError):
            while data := os.read(self.user, 4096):
                self.written += data

    @property
    def text(self) -> str:
        return self.written.decode()


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    user, program = os.openpty()
    made = Terminal(user, program)
    made.resize(100, 30)
    reader = threading.Thread(target=made.read)
    reader.start()
    yield made
    os.close(program)
    reader.join()
    os.close(user)


def test_the_terminal_is_as_before_whatever_ends_it(terminal: Terminal) -> None:
    before = termios.tcgetattr(terminal.program)
    for error in (None, KeyboardInterrupt, ValueError):
        with suppress(KeyboardInterrupt, ValueError), LiveScreen(terminal.program, terminal.program):
            assert termios.tcgetattr(terminal.program) != before
            if error is not None:
                raise error
        assert termios.tcgetattr(terminal.program) == before
    assert wait_until(lambda: terminal.text == (ENTER + LEAVE) * 3, PATIENCE)


def test_nothing_is_drawn_twice_and_a_new_size_is_drawn_again(terminal: Terminal) -> None:
    with LiveScreen(terminal.program, terminal.program) as screen:
        for _ in range(3):
            screen.draw(["one", "two"])
        assert wait_until(lambda: terminal.text.count("one") == 1, PATIENCE)
        screen.draw(["one", "three"])
        terminal.resize(90, 30)
        assert screen.size() == (90, 30)
        screen.draw(["one", "three"])
    assert wait_until(lambda: terminal.text.endswith(LEAVE), PATIENCE)
    assert terminal.text.count("\x1b[1;1Hone\x1b[K\x1b[2;1Hthree\x1b[K\x1b[J") == 2
    assert terminal.text.count("\x1b[1;1Hone\x1b[K\x1b[2;1Htwo") == 1


def test_a_terminal_of_no_size_is_small(terminal: Terminal) -> None:
    terminal.resize(0, 0)
    with LiveScreen(terminal.program, terminal.program) as screen:
        assert screen.size() == (20, 4)


@pytest.mark.parametrize(
    ("typed", "keys"),
    [
        ("q", ["q"]),
        ("sp", ["s", "p"]),
        ("\x1b[A\x1b[B", ["up", "down"]),
        ("\x1bOA\x1bOB", ["up", "down"]),
        ("\x1b[5~\x1b[6~", ["page-up", "page-down"]),
        ("\x1b[H\x1b[F\x1b[1~\x1b[4~", ["home", "end", "home", "end"]),
        ("\x1b[1;5C!", ["\x1b[1;5C", "!"]),
    ],
)
def test_keys(terminal: Terminal, typed: str, keys: list[str]) -> None:
    with LiveScreen(terminal.program, terminal.program) as screen:
        assert screen.keys(NONE) == []
        terminal.press(typed)
        assert list(screen.keys(PATIENCE)) == keys


def test_where_the_terminal_is_gone_the_user_has_quit() -> None:
    reading, writing = os.pipe()
    os.close(writing)
    screen = LiveScreen(reading, reading)
    assert screen.keys(PATIENCE) == ["q"]
    os.close(reading)


class Readings:
    """The state, as often as it is asked for."""

    def __init__(self) -> None:
        self.error: Exception | None = None

    def read(self, now: datetime) -> Snapshot:
        if self.error is not None:
            raise self.error
        rows = [Row(flow=FlowName.DELIVER, name=f"us/orders/{n} -> orders", behind=n, position=0) for n in range(50)]
        return Snapshot(region="eu", at=now, rows=rows)


def test_the_loop_draws_reads_keys_and_ends(terminal: Terminal) -> None:
    clock, stop, readings = HandClock(NOW), Stop(), Readings()
    watching = Watching(lambda: readings, clock, timedelta(milliseconds=20))

    def run() -> None:
        with LiveScreen(terminal.program, terminal.program) as screen:
            watch(screen, watching, clock, stop)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        assert wait_until(lambda: "reading ..." in terminal.text, PATIENCE)
        watching.start()
        assert wait_until(lambda: "us/orders/49" in terminal.text, PATIENCE)
        assert "us/orders/3 " not in terminal.text
        terminal.press("G")
        assert wait_until(lambda: "us/orders/3 " in terminal.text, PATIENCE)
        terminal.press("p")
        assert wait_until(lambda: "us/orders -> orders (50)" in terminal.text, PATIENCE)
        terminal.press("q")
        thread.join(PATIENCE.total_seconds())
        assert not thread.is_alive()
    finally:
        stop.set()
        thread.join()
        watching.stop()
    assert wait_until(lambda: terminal.text.endswith(LEAVE), PATIENCE)


def test_a_signal_ends_the_loop(terminal: Terminal) -> None:
    clock, stop = HandClock(NOW), Stop()
    stop.set()
    with LiveScreen(terminal.program, terminal.program) as screen:
        watch(screen, Watching(Readings, clock, PATIENCE), clock, stop)


def test_a_reading_that_waits_says_since_when() -> None:
    clock, begun, released = HandClock(NOW), threading.Event(), threading.Event()

    def opened() -> Readings:
        begun.set()
        released.wait(PATIENCE.total_seconds())
        return Readings()

    watching = Watching(opened, clock, PATIENCE)
    before = watching.reading_since
    assert before is None
    watching.start()
    try:
        assert begun.wait(PATIENCE.total_seconds())
        assert watching.last() == (None, "")
        assert watching.reading_since == NOW
        released.set()
        assert wait_until(lambda: watching.last()[0] is not None, PATIENCE)
        after = watching.reading_since
        assert after is None
    finally:
        released.set()
        watching.stop()


def test_a_failed_reading_keeps_the_last_one_and_says_why() -> None:
    readings = Readings()
    watching = Watching(lambda: readings, HandClock(NOW), timedelta(milliseconds=1))
    assert watching.last() == (None, "")
    watching.start()
    try:
        assert wait_until(lambda: watching.last()[0] is not None, PATIENCE)
        readings.error = BrokerUnavailable("planned")
        assert wait_until(lambda: watching.last()[1] == "planned", PATIENCE)
        readings.error = KeyError("a mistake of ours")  # without a word, an old state would be shown for ever
        assert wait_until(lambda: watching.last()[1] == "KeyError: 'a mistake of ours'", PATIENCE)
        assert watching.last()[0] is not None
        readings.error = None
        assert wait_until(lambda: watching.last()[1] == "", PATIENCE)
    finally:
        watching.stop()
