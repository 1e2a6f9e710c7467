"""Calls that a process of their own makes: it imports this module."""

from __future__ import annotations

import os
import threading

from formats.errors import ConfigError


def squares(count: int) -> list[int]:
    print("no answer")  # nothing of it gets into the answer
    return [n * n for n in range(count)]


def refused() -> None:
    raise ConfigError(["a", "b"], source="file")


def absent() -> None:
    raise FileNotFoundError("nowhere")


def mistaken() -> None:
    raise ValueError("a mistake")


def ends() -> None:
    os._exit(3)


def waits() -> None:
    threading.Event().wait()
