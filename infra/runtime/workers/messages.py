"""What a task and the driver send each other over the task's connection: JSON objects, each behind its length.

driver  Welcome(nonce) ──────────────────────────────────────────────────────────────> task
task    Hello(proof = HMAC of nonce and attempt, with the job's secret) ─────────────> driver
driver  Order("wait") … ChangedSettings, Order("run") … "ping" … "metrics" … ChangedSettings … "move" or "end" > task
task    State, each second … Metrics, as an answer … AttemptFailed or AttemptDrained, then the end ──> driver

bytes   length (4 bytes, big endian) | {"kind": "hello", "task": 0, …}
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import zlib
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

from formats.errors import MalformedEvent

HEAD_BYTES = 4
UNPROVEN_BYTES = 4 << 10  # limit of a message before the sender has proved that it knows the secret
MEMBER_BYTES = 64 << 20  # afterwards: the metrics of far more partitions than a process works for


@dataclass(frozen=True, slots=True, kw_only=True)
class Welcome:
    nonce: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """`attempt`: Spark's id of the attempt, unique in a job. `instance`: the member's id in its Kafka group."""

    job: int
    task: int
    attempt: int
    host: str
    pid: int
    instance: str
    proof: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """`move`: drain, then fail, so that Spark begins the task on another executor."""

    what: Literal["wait", "run", "ping", "metrics", "move", "end"]
    reason: str = ""
    accept: str = ""  # of "metrics": the header of who asks for them

    def __post_init__(self) -> None:
        if self.what not in ("wait", "run", "ping", "metrics", "move", "end"):
            raise ValueError(f"no such order: {self.what!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedSettings:
    """Settings that are in force from now on, without credentials. `pickled`: base64; it is loaded only when `proof`
    shows that the driver has sent it over this connection."""

    pickled: str
    proof: str


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """Health of the task's service: JSON of `infra.runtime.workers.gathered`."""

    health: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedMetrics:
    """A page of metrics, the answer to an order with the same `accept`. `packed`: base64, compressed: the metrics of a
    thousand partitions are up to 14 MB of text."""

    accept: str
    packed: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptFailed:
    """The last message of an attempt whose service failed."""

    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptDrained:
    """The last message of an attempt that ends as ordered: its service was drained, or had not begun."""


Message = Welcome | Hello | Order | ChangedSettings | State | PackedMetrics | AttemptFailed | AttemptDrained

_KINDS: dict[str, type[Any]] = {
    "welcome": Welcome,
    "hello": Hello,
    "order": Order,
    "settings": ChangedSettings,
    "state": State,
    "metrics": PackedMetrics,
    "failed": AttemptFailed,
    "ended": AttemptDrained,
}
_NAMES = {kind: name for name, kind in _KINDS.items()}
_TYPES = {"int": int, "str": str}


def encode(message: Message) -> bytes:
    body = json.dumps({"kind": _NAMES[type(message)], **asdict(message)}).encode()
    return len(body).to_bytes(HEAD_BYTES, "big") + body


def decode(body: bytes) -> Message:
    """Of a frame without its length. Raises MalformedEvent."""
    try:
        values = json.loads(body)
        kind = _KINDS[values.pop("kind")]
        wanted = {field.name: _TYPES.get(str(field.type), str) for field in fields(kind)}
        if any(type(values[name]) is not wanted[name] for name in values):  # bool is no int here
            raise TypeError("a field of another type")
        message: Message = kind(**values)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise MalformedEvent(f"not a message of a task or its driver: {body[:60]!r} ({error!r})") from error
    return message


class Frames:
    """Cuts received bytes into messages. After an error the connection is useless."""

    def __init__(self, limit_bytes: int = UNPROVEN_BYTES) -> None:
        self.limit_bytes = limit_bytes
        self._received = bytearray()

    def feed(self, data: bytes) -> list[Message]:
        """The messages that `data` completes. Raises MalformedEvent, also for a length beyond the limit: at most that
        much is ever kept."""
        self._received += data
        found: list[Message] = []
        while len(self._received) >= HEAD_BYTES:
            length = int.from_bytes(self._received[:HEAD_BYTES], "big")
            if not 0 < length <= self.limit_bytes:
                raise MalformedEvent(f"not a message of a task or its driver: {length} bytes")
            if len(self._received) < HEAD_BYTES + length:
                break
            found.append(decode(bytes(self._received[HEAD_BYTES : HEAD_BYTES + length])))
            del self._received[: HEAD_BYTES + length]
        return found


def proof_of(secret: str, nonce: str, hello: Hello) -> str:
    """What only a holder of the secret can compute; `hello.proof` is not part of it."""
    claim = json.dumps([nonce, hello.job, hello.task, hello.attempt, hello.host, hello.pid, hello.instance])
    return hmac.new(secret.encode(), claim.encode(), hashlib.sha256).hexdigest()


def packed_metrics(accept: str, text: str) -> PackedMetrics:
    return PackedMetrics(accept=accept, packed=base64.b64encode(zlib.compress(text.encode(), level=1)).decode())


def metrics_text(message: PackedMetrics) -> str:
    """Raises MalformedEvent."""
    try:
        return zlib.decompress(base64.b64decode(message.packed, validate=True)).decode()
    except (ValueError, zlib.error) as error:
        raise MalformedEvent(f"metrics that cannot be unpacked: {error}") from error


def changed_settings(secret: str, nonce: str, pickled: bytes) -> ChangedSettings:
    """The message for the connection of `nonce`."""
    text = base64.b64encode(pickled).decode()
    return ChangedSettings(pickled=text, proof=_settings_proof(secret, nonce, text))


def pickled_settings(secret: str, nonce: str, message: ChangedSettings) -> bytes:
    """Raises MalformedEvent when the proof is not the driver's."""
    if not hmac.compare_digest(_settings_proof(secret, nonce, message.pickled).encode(), message.proof.encode()):
        raise MalformedEvent("settings without the proof of this application's driver")
    try:
        return base64.b64decode(message.pickled, validate=True)
    except ValueError as error:
        raise MalformedEvent(f"settings that are not base64: {error}") from error


def _settings_proof(secret: str, nonce: str, text: str) -> str:
    return hmac.new(secret.encode(), f"settings {nonce} {text}".encode(), hashlib.sha256).hexdigest()


def is_proven(secret: str, nonce: str, hello: Hello) -> bool:
    return hmac.compare_digest(proof_of(secret, nonce, hello).encode(), hello.proof.encode())
