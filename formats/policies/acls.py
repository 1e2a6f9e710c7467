"""Which ACLs cross with a topic, and as what.

    mirror        the rules of MirrorMaker 2: bindings of one literal topic, ALLOW WRITE left out, ALLOW ALL as READ
    strict-read   ALLOW READ for principals that may READ the source (KIP-382's words), and DENY READ for those that may
                  not, be it by a binding of a prefix or of all topics; nothing else
    dr-full       also WRITE, ALL, prefixed patterns and bindings of groups, as they are: for a region that takes over.
                  A binding of all topics becomes one for each remote topic: `*` at the target would cover that
                  cluster's own topics, too, and the replicator's. A DENY of a prefix becomes one for each remote topic
                  whose name does not begin with it, too
    off           none

Pure. Names of operations, permissions, patterns and resources are Kafka's own, in upper case.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

AclMode = Literal["mirror", "strict-read", "dr-full", "off"]

TOPIC, GROUP = "TOPIC", "GROUP"
LITERAL, PREFIXED = "LITERAL", "PREFIXED"
ALLOW, DENY = "ALLOW", "DENY"
ALL, READ, WRITE = "ALL", "READ", "WRITE"
WILDCARD = "*"  # as the name of a literal resource: every resource of the type


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class AclBinding:
    """One ACL of a cluster."""

    resource_type: str
    resource_name: str
    pattern_type: str
    principal: str  # such as "User:alice"
    host: str
    operation: str
    permission: str

    def __post_init__(self) -> None:
        if not all((self.resource_type, self.resource_name, self.pattern_type, self.principal, self.host)):
            raise ValueError(f"not an ACL: {self}")

    def __str__(self) -> str:
        pattern = "" if self.pattern_type == LITERAL else f"{self.pattern_type.lower()} "
        return (
            f"{self.permission} {self.operation} on {self.resource_type.lower()} {pattern}{self.resource_name} to "
            f"{self.principal} from {self.host}"
        )


def mirrored(
    bindings: Iterable[AclBinding], mode: AclMode, destinations: Mapping[str, Collection[str]]
) -> frozenset[AclBinding]:
    """The bindings that the target should have for its remote topics. `destinations`: the remote topics of each source
    topic that is replicated."""
    return frozenset(_mirrored(bindings, mode, destinations))


def _mirrored(
    bindings: Iterable[AclBinding], mode: AclMode, destinations: Mapping[str, Collection[str]]
) -> Iterator[AclBinding]:
    for binding in bindings:
        if mode == "off" or binding.resource_type not in (TOPIC, GROUP):
            continue
        if mode == "dr-full" and (binding.resource_type == GROUP or binding.pattern_type == PREFIXED):
            yield binding  # group ids and prefixes are not renamed
            yield from _denied_by_prefix(binding, destinations)
            continue
        operation = _crossing(binding, mode)
        if operation:
            for name in _remote(binding, destinations):
                yield replace(binding, resource_name=name, pattern_type=LITERAL, operation=operation)


def _denied_by_prefix(binding: AclBinding, destinations: Mapping[str, Collection[str]]) -> Iterator[AclBinding]:
    """Of a DENY of a prefix, one for each remote topic that has another name: what its principal is allowed by the name
    of the topic, or by all topics, crosses to that name."""
    if binding.resource_type == TOPIC and binding.permission == DENY:
        for name in _remote(binding, destinations):
            if not name.startswith(binding.resource_name):
                yield replace(binding, resource_name=name, pattern_type=LITERAL)


def _crossing(binding: AclBinding, mode: AclMode) -> str:
    """The operation with which a binding crosses, to each remote topic; empty: it does not."""
    is_of_one = binding.pattern_type == LITERAL and binding.resource_name != WILDCARD
    if binding.resource_type == GROUP:
        return ""
    match mode:
        case "mirror" if is_of_one:
            if binding.permission != ALLOW:
                return binding.operation
            return {WRITE: "", ALL: READ}.get(binding.operation, binding.operation)
        # who is denied all topics, or those of a prefix, may not read this one, whatever else is allowed
        case "strict-read" if is_of_one or binding.permission == DENY:
            return READ if binding.operation in (READ, ALL) else ""
        case "dr-full":
            return binding.operation
        case _:
            return ""


def _remote(binding: AclBinding, destinations: Mapping[str, Collection[str]]) -> Collection[str]:
    """The remote topics of the source topics that a binding is of."""
    if binding.pattern_type == LITERAL and binding.resource_name != WILDCARD:
        return destinations.get(binding.resource_name, ())
    prefix = "" if binding.pattern_type == LITERAL else binding.resource_name
    return {remote for topic, found in destinations.items() if topic.startswith(prefix) for remote in found}


def hinders(binding: AclBinding, own_principals: Collection[str]) -> bool:
    """Whether it is a DENY of more than reading that concerns the replicator itself, by name or as everybody."""
    is_ours = binding.principal in own_principals or binding.principal.endswith(f":{WILDCARD}")
    return binding.permission == DENY and binding.operation != READ and is_ours


def without_hindrances(
    bindings: Iterable[AclBinding], own_principals: Collection[str]
) -> tuple[frozenset[AclBinding], tuple[AclBinding, ...]]:
    """What may be created of `bindings`, and those of topics that may not, as the replicator could not write any more.
    Of a DENY of ALL, that of READ is left: who may not read the source may not read its copy."""
    kept: set[AclBinding] = set()
    left: list[AclBinding] = []
    for binding in sorted(bindings):
        if binding.resource_type != TOPIC or not hinders(binding, own_principals):
            kept.add(binding)
            continue
        left.append(binding)
        if binding.operation == ALL:
            kept.add(replace(binding, operation=READ))
    return frozenset(kept), tuple(left)


@dataclass(frozen=True, slots=True)
class WriteGrants:
    """The bindings of a cluster that allow writing to topics, by their patterns: asked for thousands of topics, each
    answer takes the time of the topic's own."""

    literal: Mapping[str, Sequence[AclBinding]]
    prefixed: Mapping[str, Sequence[AclBinding]]

    @classmethod
    def among(cls, bindings: Iterable[AclBinding]) -> WriteGrants:
        literal: dict[str, list[AclBinding]] = {}
        prefixed: dict[str, list[AclBinding]] = {}
        for one in bindings:
            if one.resource_type == TOPIC and one.permission == ALLOW and one.operation in (WRITE, ALL):
                by_pattern = prefixed if one.pattern_type == PREFIXED else literal
                by_pattern.setdefault(one.resource_name, []).append(one)
        return cls(literal, prefixed)

    def of(self, topic: str) -> Iterator[AclBinding]:
        for name in (topic, WILDCARD):
            yield from self.literal.get(name, ())
        if self.prefixed:
            for length in range(len(topic) + 1):
                yield from self.prefixed.get(topic[:length], ())


def protecting(
    topic: str, grants: WriteGrants, own_principals: Collection[str]
) -> tuple[frozenset[AclBinding], frozenset[str]]:
    """What forbids writing to a remote topic, and the principals that cannot be forbidden.

    DENY WRITE for each named principal that a literal, prefixed or wildcard binding of the target allows to write.
    Never for `User:*`, which would deny the replicator too, and never for `own_principals`: these are returned as
    principals that still may write, except our own.
    """
    deny: set[AclBinding] = set()
    left: set[str] = set()
    for binding in grants.of(topic):
        if binding.principal in own_principals:
            continue
        if binding.principal.endswith(f":{WILDCARD}"):
            left.add(binding.principal)
            continue
        deny.add(
            AclBinding(
                resource_type=TOPIC,
                resource_name=topic,
                pattern_type=LITERAL,
                principal=binding.principal,
                host=WILDCARD,
                operation=WRITE,
                permission=DENY,
            )
        )
    return frozenset(deny), frozenset(left)
