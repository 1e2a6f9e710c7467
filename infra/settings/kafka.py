"""The `[kafka]` section: librdkafka properties, passed through unchanged, except those this program depends on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from infra.settings.field import dotted, enforce, setting
from infra.settings.secrets import masked

Role = Literal["consumer", "producer", "admin"]
ROLES: tuple[Role, ...] = ("consumer", "producer", "admin")
SERVERS = "bootstrap.servers"
MISSING_SERVERS = 'missing: addresses of brokers, such as "broker-1:9092,broker-2:9092"'

_FALSE = frozenset({"false", "0", "f", "n", "no"})


def _always(reason: str) -> Callable[[str], str | None]:
    return lambda _value: reason


def _isolation(value: str) -> str | None:
    if value in ("read_committed", "read_uncommitted"):
        return None
    return f'must be "read_committed" or "read_uncommitted", not {value!r}'


def _idempotence(value: str) -> str | None:
    if value.lower() in _FALSE:
        return "must stay true: without it a retried request may repeat or reorder records"
    return None


def _acks(value: str) -> str | None:
    if value in ("all", "-1"):
        return None
    return f'must stay "all", not {value!r}: a checkpoint says that the record before it cannot be lost'


_OWNED: Mapping[Role, Mapping[str, Callable[[str], str | None]]] = {
    "consumer": {
        "enable.auto.commit": _always("is ours: an offset is committed when its segment is stored, never by a timer"),
        "enable.auto.offset.store": _always("is ours: positions are kept per segment, not by the client"),
        "auto.offset.reset": _always(
            'is ours: a position the broker no longer holds is never skipped silently (set egress.topics."…".start)'
        ),
        "enable.partition.eof": _always(
            "is ours: it reports the end of a partition behind markers and aborted records"
        ),
        "group.id": _always("is set by egress.group_id and ingress.group_id"),
        "isolation.level": _isolation,
    },
    "producer": {
        "enable.idempotence": _idempotence,
        "transactional.id": _always("is ours: derived from the group, so that a successor fences its predecessor"),
        "delivery.report.only.error": _always("is ours: every record's acknowledgement is counted before a checkpoint"),
        "acks": _acks,
        "request.required.acks": _acks,  # librdkafka's alias for acks
    },
    "admin": {},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSettings:
    """This region's cluster. `base` is for every client; each role's table overrides it. Values may hold secrets."""

    base: Mapping[str, str] = field(
        metadata=setting('librdkafka properties of every client; "bootstrap.servers" is required')
    )
    consumer: Mapping[str, str] = field(
        default_factory=dict, metadata=setting("librdkafka properties of consumers, over those of [kafka]")
    )
    producer: Mapping[str, str] = field(
        default_factory=dict, metadata=setting("librdkafka properties of producers, over those of [kafka]")
    )
    admin: Mapping[str, str] = field(
        default_factory=dict, metadata=setting("librdkafka properties of admin clients, over those of [kafka]")
    )

    def __post_init__(self) -> None:
        enforce(self, [(dotted(path), what) for path, what in refused(self)])

    @property
    def servers(self) -> str:
        """Bootstrap servers, for messages."""
        return self.base.get(SERVERS) or self.admin.get(SERVERS, "?")

    def properties(self, role: Role) -> dict[str, str]:
        """A new dict: `base`, overridden by the role's own properties."""
        return {**self.base, **self._of(role)}

    def _of(self, role: Role) -> Mapping[str, str]:
        match role:
            case "consumer":
                return self.consumer
            case "producer":
                return self.producer
            case "admin":
                return self.admin

    def __repr__(self) -> str:  # the generated one would print passwords
        tables = {name: masked(getattr(self, name)) for name in ("base", *ROLES)}
        return f"KafkaSettings({', '.join(f'{name}={table}' for name, table in tables.items())})"


def refused(settings: KafkaSettings) -> Iterator[tuple[tuple[str, ...], str]]:
    """Each property that must not be set so, as its path below `[kafka]` and the reason."""
    if any(not settings.properties(role).get(SERVERS, "").strip() for role in ROLES):
        yield (SERVERS,), MISSING_SERVERS
    for name, value in settings.base.items():
        for role in ROLES:
            what = _refusal(role, name, value)
            if what is not None:
                yield (name,), what
    for role in ROLES:
        for name, value in settings._of(role).items():
            what = _refusal(role, name, value)
            if what is not None:
                yield (role, name), what


def _refusal(role: Role, name: str, value: str) -> str | None:
    rule = _OWNED[role].get(name)
    return None if rule is None else rule(value)
