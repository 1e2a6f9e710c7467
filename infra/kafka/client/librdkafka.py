"""librdkafka's own functions inside the confluent_kafka wheel, for compiled code that handles records without a Python
object for each.

`confluent_kafka` stays what connects, configures, secures, joins and calls back. This module gives access beside it:
the handle of a client, the functions of the library that this client runs on, and our compiled objects of
`infra/kafka/native/`, which are linked against nothing and get the addresses of librdkafka's functions.

Rules
  1. Nothing here guesses. Whatever differs from what was tested makes this process use the plain path, which needs
     none of this: another platform, another C library, another version of the client, another layout of objects, a
     missing or an obsolete object. `unfit` says which, and `is_fit` logs it, once.
  2. A handle is valid as long as its client is open. Who takes one keeps the client, and is closed before it.
  3. A call of `function` or `call` releases the GIL. One of `quick_function` or `quick` keeps it: for calls of a few
     microseconds, after which a thread would have to wait for it.
  4. Never call a function of librdkafka that may run a callback of the client, such as polling the client's own queue:
     the client's callbacks expect to be inside one of the client's own calls.
"""

from __future__ import annotations

import ctypes
import logging
import os
import platform
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, TypeAlias

import confluent_kafka

from infra.runtime.log_fields import NEXT, REASON

SWITCH = "REPLICATOR_NATIVE"
"""Environment variable: `off` makes this process use the plain path."""
TESTED = ("2.16",)  # versions of librdkafka, and of the client, with which the compiled code was tested
OBJECTS: Traversable = files("infra.kafka") / "native"  # a folder, or one in the zip file that a Spark worker gets
TARGET = "linux-x86_64"
ENDING = f".{TARGET}.so"

NativeFunction: TypeAlias = Callable[..., Any]

log = logging.getLogger(__name__)


@cache
def is_fit() -> bool:
    """Whether compiled code may handle this process's records. Logs the reason once if not."""
    reason = unfit()
    if reason:
        if switched_off():
            log.info("native_records_off", extra={REASON: reason})
        else:
            log.warning("native_records_off", extra={REASON: reason, NEXT: "nothing: Python handles records, slower"})
    return not reason


def switched_off() -> bool:
    return os.environ.get(SWITCH, "").lower() in ("off", "0", "false", "no")


@cache
def unfit() -> str:
    """Why compiled code may not handle this process's records; empty if it may."""
    if switched_off():
        return f"switched off by {SWITCH}"
    machine = f"{platform.system()}-{platform.machine()}".lower()
    if machine != TARGET:
        return f"there are no compiled objects for {machine}, only for {TARGET}"
    if platform.libc_ver()[0] != "glibc":
        return "the C library is not glibc"
    if sys.implementation.name != "cpython" or object.__basicsize__ != 2 * ctypes.sizeof(ctypes.c_void_p):
        return "this Python lays out its objects differently from CPython's standard build"
    client, library = str(confluent_kafka.version()), str(confluent_kafka.libversion()[0])
    if any(version.rpartition(".")[0] not in TESTED for version in (client, library)):
        return f"confluent_kafka {client} with librdkafka {library} is not among the tested: {', '.join(TESTED)}"
    try:
        if (loaded := _library().rd_kafka_version()) != confluent_kafka.libversion()[1]:
            return f"the library beside confluent_kafka has version {loaded:#x}, the client's is another"
        if missing := {"consume", "produce"} - {name for name in names() if compiled(name)}:
            return f"compiled objects are not installed in {OBJECTS}: {', '.join(sorted(missing))}"
    except (OSError, LookupError) as error:
        return str(error)
    return ""


def library_version() -> str:
    """Of the librdkafka that is loaded, such as 2.12.1."""
    return str(confluent_kafka.libversion()[0])


def names() -> Sequence[str]:
    """Of the compiled objects."""
    found = (one.name for one in OBJECTS.iterdir()) if OBJECTS.is_dir() else ()
    return sorted(name.removesuffix(ENDING) for name in found if name.endswith(ENDING))


def handle(client: confluent_kafka.Consumer | confluent_kafka.Producer) -> int:
    """The `rd_kafka_t *` of an open client, which the client's object holds right behind its head."""
    found = _handle(client)
    if not found:
        raise RuntimeError("the client is closed, it has no handle any more")
    return found


def is_open(client: confluent_kafka.Consumer | confluent_kafka.Producer) -> bool:
    """False once the library has ended the client's threads."""
    return bool(_handle(client))


def _handle(client: confluent_kafka.Consumer | confluent_kafka.Producer) -> int | None:
    return ctypes.c_void_p.from_address(id(client) + object.__basicsize__).value


def function(name: str, result: Any, *arguments: Any) -> NativeFunction:
    """A function of librdkafka. Raises AttributeError if it has none of that name."""
    found: Any = ctypes.CFUNCTYPE(result, *arguments)
    return found(address(name))  # type: ignore[no-any-return]


def quick_function(name: str, result: Any, *arguments: Any) -> NativeFunction:
    """As `function`, for a call that neither waits nor takes long: it keeps the GIL."""
    found: Any = ctypes.PYFUNCTYPE(result, *arguments)
    return found(address(name))  # type: ignore[no-any-return]


def address(name: str) -> int:
    found = ctypes.cast(getattr(_library(), name), ctypes.c_void_p).value
    assert found is not None  # a symbol of a loaded library
    return found


def addresses(*functions: str) -> ctypes.Array[ctypes.c_void_p]:
    """Addresses of `rd_kafka_` + each name, as the `init` of a compiled object takes them."""
    return (ctypes.c_void_p * len(functions))(*(address(f"rd_kafka_{name}") for name in functions))


@dataclass(frozen=True, slots=True)
class Compiled:
    """One of our compiled objects."""

    _releasing: ctypes.CDLL
    _keeping: ctypes.PyDLL

    def call(self, name: str, result: Any, *arguments: Any) -> NativeFunction:
        return _typed(self._releasing, name, result, arguments)

    def quick(self, name: str, result: Any, *arguments: Any) -> NativeFunction:
        return _typed(self._keeping, name, result, arguments)

    @property
    def path(self) -> str:
        """By which the loader finds this very object again."""
        return self._releasing._name

    @property
    def sources(self) -> str:
        """Digest of the sources that it was built from."""
        return ctypes.string_at(ctypes.addressof(ctypes.c_char.in_dll(self._releasing, "replicator_sources"))).decode()


@cache
def compiled(name: str) -> Compiled:
    """The object of `infra/kafka/native/NAME.c`. Raises OSError when it is missing, or cannot be loaded."""
    found = OBJECTS / f"{name}{ENDING}"
    if isinstance(found, Path):
        return Compiled(ctypes.CDLL(str(found)), ctypes.PyDLL(str(found)))
    # Inside a zip file: loaded from memory. The descriptor stays open, since the loader knows a library by its path.
    descriptor = os.memfd_create(name, os.MFD_CLOEXEC)
    with open(descriptor, "wb", closefd=False) as memory:
        memory.write(found.read_bytes())
    path = f"/proc/self/fd/{descriptor}"
    return Compiled(ctypes.CDLL(path), ctypes.PyDLL(path))


@cache
def _library() -> ctypes.CDLL:
    """The library that the client's own module is linked against: loading it again gives the same one."""
    beside = Path(confluent_kafka.__file__).resolve().parent.parent / "confluent_kafka.libs"
    found = sorted(beside.glob("librdkafka-*.so*"))
    if len(found) != 1:
        raise LookupError(
            f"{beside} holds {len(found)} librdkafka-*.so: confluent_kafka is not installed from its wheel"
        )
    return ctypes.CDLL(str(found[0]))


@cache
def _typed(library: ctypes.CDLL, name: str, result: Any, arguments: tuple[Any, ...]) -> NativeFunction:
    """Once for each signature: two of them for each run would cost as much as the rest of what is done for it."""
    # a pointer of its own: the library's attribute is shared by all who use it
    kind: Any = (ctypes.PYFUNCTYPE if isinstance(library, ctypes.PyDLL) else ctypes.CFUNCTYPE)(result, *arguments)
    return kind((name, library))  # type: ignore[no-any-return]
