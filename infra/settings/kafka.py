"""The `[kafka]` section: librdkafka properties, passed through unchanged, except those this program depends on, and how
tokens for SASL/OAUTHBEARER are made.

`auth` and what belongs to it are no properties of librdkafka. `KafkaSettings.properties` puts them among the properties
all the same, as texts, so that they reach every client, also in a Spark task; `infra.kafka.client.connect` takes them
out again where a client is created.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from formats.plugins import SIGN
from infra.settings.field import dotted, enforce, not_blank, setting
from infra.settings.secrets import CREDENTIALS_IN_URL, has_credentials, is_secret, masked

Role = Literal["consumer", "producer", "admin"]
ROLES: tuple[Role, ...] = ("consumer", "producer", "admin")
SERVERS = "bootstrap.servers"
MISSING_SERVERS = 'missing: addresses of brokers, such as "broker-1:9092,broker-2:9092"'

AUTH, AUTH_REGION, AUTH_PROFILE = "auth", "auth_region", "auth_profile"
AUTH_NAMES = (AUTH, AUTH_REGION, AUTH_PROFILE)
MSK_IAM = "aws-msk-iam"
PROTOCOL, MECHANISMS, BEARER = "security.protocol", ("sasl.mechanism", "sasl.mechanisms"), "OAUTHBEARER"

# b-1.name.id.c2.kafka.us-east-1.amazonaws.com, boot-id.c3.kafka-serverless.us-east-1.amazonaws.com, vpce-… in between
_MSK_HOST = re.compile(r"\.kafka(?:-serverless)?\.(?P<region>[a-z]{2,}(?:-[a-z0-9]+)+)\.(?:amazonaws\.com|api\.aws)")
NO_TOKENS = (
    f'nothing makes tokens for "{BEARER}": set {AUTH}, or "sasl.oauthbearer.method" = "oidc" with what belongs to it'
)
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


def _token_maker(value: str) -> str | None:
    module, sign, name = value.partition(SIGN)
    if value == MSK_IAM or (module and sign and name):
        return None
    return f'must be "{MSK_IAM}" or "package.module:Class", not {value!r}'


def aws_region_of(servers: str) -> str:
    """The AWS region in the names of brokers of Amazon MSK; empty when they have none, or different ones."""
    found = {match["region"] for match in _MSK_HOST.finditer(servers)}
    return found.pop() if len(found) == 1 else ""


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
    auth: str | None = field(
        default=None,
        metadata=setting(
            f'what makes tokens for SASL/OAUTHBEARER: "{MSK_IAM}" (IAM access control of Amazon MSK; install the extra '
            '"msk"), or a class of yours, "package.module:Class"; default: the sasl.* properties alone',
            check=_token_maker,
        ),
    )
    auth_region: str | None = field(
        default=None,
        metadata=setting(
            f'AWS region of the cluster, for auth = "{MSK_IAM}"; default: the one in the names of "{SERVERS}"',
            check=not_blank,
        ),
    )
    auth_profile: str | None = field(
        default=None,
        metadata=setting(
            f'AWS profile that signs the tokens of auth = "{MSK_IAM}", which may assume a role; default: credentials '
            "as the AWS SDK finds them",
            check=not_blank,
        ),
    )

    def __post_init__(self) -> None:
        enforce(self, [(dotted(path), what) for path, what in refused(self)])

    @property
    def servers(self) -> str:
        """Bootstrap servers, for messages."""
        return self.base.get(SERVERS) or self.admin.get(SERVERS, "?")

    def properties(self, role: Role) -> dict[str, str]:
        """A new dict: `base`, overridden by the role's own properties. With `auth`, what `connect` needs is in it."""
        given = {**self.base, **self._of(role)}
        if self.auth is None:
            return given
        settings = {AUTH: self.auth, AUTH_REGION: self._region(given), AUTH_PROFILE: self.auth_profile}
        return {
            PROTOCOL: "SASL_SSL",
            **({} if any(name in given for name in MECHANISMS) else {MECHANISMS[0]: BEARER}),
            **given,
            **{name: value for name, value in settings.items() if value},
        }

    def _region(self, given: Mapping[str, str]) -> str:
        return self.auth_region or aws_region_of(given.get(SERVERS, ""))

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
        auth = "".join(f", {name}={getattr(self, name)!r}" for name in AUTH_NAMES if getattr(self, name) is not None)
        return f"KafkaSettings({', '.join(f'{name}={table}' for name, table in tables.items())}{auth})"


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
    yield from _beside_auth(settings)


def _beside_auth(settings: KafkaSettings) -> Iterator[tuple[tuple[str, ...], str]]:
    """What contradicts `auth`, or needs it."""
    if settings.auth is None:
        for role in ROLES:
            if _lacks_tokens(settings.properties(role)):
                name = next(one for one in MECHANISMS if one in settings.properties(role))
                yield ((name,) if name in settings.base else (role, name)), NO_TOKENS
        for name in (AUTH_REGION, AUTH_PROFILE):
            if getattr(settings, name) is not None:
                yield (name,), f"belongs to {AUTH}, which is not set: set it, or take this out"
        return
    tables = ((), settings.base), *(((role,), settings._of(role)) for role in ROLES)
    for path, table in tables:
        for name, value in table.items():
            if (what := _contradiction(settings.auth, name, value)) is not None:
                yield (*path, name), what
    if settings.auth == MSK_IAM and not all(settings._region(settings.properties(role)) for role in ROLES):
        yield (AUTH_REGION,), f'missing: no name in "{SERVERS}" says the AWS region of the cluster'


def _lacks_tokens(properties: Mapping[str, str]) -> bool:
    """Whether a client would wait for ever for a token that nothing makes."""
    is_bearer = any(properties.get(name) == BEARER for name in MECHANISMS)
    has_own = properties.get("sasl.oauthbearer.method", "default").lower() == "oidc"
    is_unsecured = properties.get("enable.sasl.oauthbearer.unsecure.jwt", "false").lower() not in _FALSE
    return is_bearer and not has_own and not is_unsecured


def _contradiction(auth: str, name: str, value: str) -> str | None:
    """The reason why a property cannot be beside `auth`."""
    if name in MECHANISMS:
        return None if value == BEARER else f'must be "{BEARER}", or left out, since {AUTH} = "{auth}"'
    if name == PROTOCOL:
        allowed = ("sasl_ssl",) if auth == MSK_IAM else ("sasl_ssl", "sasl_plaintext")
        listed = " or ".join(f'"{one.upper()}"' for one in allowed)
        return None if value.lower() in allowed else f'must be {listed}, or left out, since {AUTH} = "{auth}"'
    if name in ("sasl.username", "sasl.password") or name.startswith("sasl.oauthbearer."):
        return f'has no effect with {AUTH} = "{auth}", which makes the tokens: take one of them out'
    return None


def _refusal(role: Role, name: str, value: str) -> str | None:
    if has_credentials(value) and not is_secret(name):
        return CREDENTIALS_IN_URL
    rule = _OWNED[role].get(name)
    return None if rule is None else rule(value)
