"""The table's rights in a cluster as ACLs, with the names of a configuration. Pure.

An ACL names one resource, or all whose names begin with a text. An expression becomes the longest text that all of its
names begin with; where that is more than the expression selects, the ACL says so.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from formats.topic_selection import TopicPattern
from ingress.source_settings import IngressSource
from replicator.config import Config
from replicator.rights.table import KAFKA, OPTIONAL, CommandRole, On

EVERYTHING = "*"  # of Kafka, as a literal name
RESTORES = "replicator.restore."
_MARK = "topic-name-here"
_OPTIONS = {"topic": "--topic", "group": "--group", "transactional-id": "--transactional-id"}
_ORDER = ("READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "ALTER_CONFIGS", "DESCRIBE_CONFIGS")


@dataclass(frozen=True, slots=True, order=True)
class Name:
    """Of one resource, or of all with this prefix. `broader`: what was meant, where this is more."""

    text: str
    is_prefix: bool = False
    broader: str = ""

    def covers(self, name: str) -> bool:
        """Whether an ACL of this name is about the resource `name`."""
        return name.startswith(self.text) if self.is_prefix else self.text in (EVERYTHING, name)


@dataclass(frozen=True, slots=True)
class Acl:
    """Operations that are allowed on one resource. `without`: what is left out without it; empty: it is needed."""

    kind: str  # "topic", "group", "transactional-id", "cluster"
    name: Name
    operations: Sequence[str]
    without: str = ""

    def arguments(self, principal: str) -> Sequence[str]:
        """Arguments of `kafka-acls.sh`, without those that say where the cluster is."""
        operations = [part for one in self.operations for part in ("--operation", _camel(one))]
        resource = ["--cluster"] if self.kind == "cluster" else [_OPTIONS[self.kind], self.name.text]
        pattern = ["--resource-pattern-type", "prefixed"] if self.name.is_prefix else []
        return ["--add", "--allow-principal", principal, *operations, *resource, *pattern]


def kafka_acls_line(acl: Acl, principal: str) -> str:
    """One command line, for a shell."""
    where = '--bootstrap-server "$BOOTSTRAP" --command-config "$ADMIN_PROPERTIES"'
    return f"kafka-acls.sh {where} {shlex.join(acl.arguments(principal))}"


def acls(role: CommandRole, config: Config, topics: Collection[Name] = (), *, optional: bool = False) -> Sequence[Acl]:
    """What a principal of `role` needs; with `optional` also what is of use. `topics`: those that a restore writes;
    default: those that are archived here, whose own names a restore gives them, and the destinations."""
    if role.name == "restore":
        topics = topics or list(dict.fromkeys([*_archived(config), *_destinations(config)]))
    else:
        topics = ()
    found: dict[tuple[str, Name, str], set[str]] = {}
    for right in KAFKA:
        if right.who in role.kafka and right.on is not None:
            for kind, name in _named(right.on, config, topics):
                found.setdefault((kind, name, ""), set()).update(right.operations)
    if optional:
        for more in OPTIONAL:
            if f"`{more.who}`" in role.kafka and (not more.only_with or _is_set(more.only_with, config)):
                for kind, name in (each for on in more.on for each in _named(on, config, ())):
                    left = set(more.operations) - found.get((kind, name, ""), set())
                    if left:
                        found.setdefault((kind, name, more.without), set()).update(left)
    return [
        Acl(kind, name, sorted(operations, key=_ORDER.index), without)
        for (kind, name, without), operations in found.items()
    ]


def _is_set(only_with: str, config: Config) -> bool:
    if config.ingress is None:
        return False
    if only_with == "removals":
        return config.ingress.removals == "mirror"
    return any(source.preserves_offsets for source in config.ingress.sources)


def _named(on: On, config: Config, topics: Collection[Name]) -> Iterator[tuple[str, Name]]:
    """Kinds and names of resources; none where the configuration lacks the section."""
    egress, ingress = config.egress, config.ingress
    own = (
        {}
        if ingress is None
        else {
            On.EVENTS: ingress.segment_events_topic,
            On.CHECKPOINTS: ingress.checkpoint_topic,
            On.OFFSET_MAP: ingress.offset_map_topic,
            On.LEDGER: ingress.ledger_topic,
        }
    )
    match on:
        case On.TOPICS:
            yield from (("topic", name) for name in _archived(config))
        case On.DESTINATIONS:
            names = topics or _destinations(config) or _archived(config)
            yield from (("topic", name) for name in names)
        case On.EVENTS | On.CHECKPOINTS | On.OFFSET_MAP | On.LEDGER:
            if on in own:
                yield "topic", Name(own[on])
        case On.EGRESS_GROUP:
            if egress is not None:
                yield "group", Name(egress.group_id)
        case On.INGRESS_GROUP:
            if ingress is not None:
                yield "group", Name(ingress.group_id)
        case On.IDENTITIES:
            if ingress is not None:
                yield "transactional-id", Name(ingress.group_id, is_prefix=True)
        case On.RESTORES:
            yield "topic", Name(RESTORES, is_prefix=True)
        case On.RESTORE_IDENTITIES:
            yield "transactional-id", Name(RESTORES, is_prefix=True)
        case On.CLUSTER:
            yield "cluster", Name("kafka-cluster")
        case On.SOURCE_GROUPS:
            if egress is not None:
                yield "group", Name(EVERYTHING, broader="the groups that egress.groups selects")
        case On.GROUPS:
            if ingress is not None and config.groups.sync:
                yield "group", Name(EVERYTHING, broader="the groups that are synced")
        case On.HEARTBEATS:
            if (egress is not None and egress.write_heartbeats) or any(_heartbeats(config)):
                yield "topic", Name("heartbeats")
        case On.REMOTE_HEARTBEATS:
            yield from (("topic", Name(name)) for name in _heartbeats(config))
        case On.REMOTE_CHECKPOINTS | On.OFFSET_SYNCS:
            for source in _sources(config):
                if source.policy is not None and not source.syncs_nothing:
                    is_checkpoints = on is On.REMOTE_CHECKPOINTS
                    of_policy = source.policy.checkpoints_topic if is_checkpoints else source.policy.offset_syncs_topic
                    yield "topic", Name(of_policy(source.source_alias))


def _sources(config: Config) -> Sequence[IngressSource]:
    return () if config.ingress is None else config.ingress.sources


def _heartbeats(config: Config) -> Sequence[str]:
    return [topics[1] for source in _sources(config) if (topics := source.heartbeat_topics) is not None]


def _archived(config: Config) -> Sequence[Name]:
    if config.egress is None:
        return ()
    return list(dict.fromkeys(name_of(rule.pattern) for rule in config.egress.topics))


def _destinations(config: Config) -> Sequence[Name]:
    return list(dict.fromkeys(name for source in _sources(config) for name in _of_source(source)))


def _of_source(source: IngressSource) -> Iterator[Name]:
    topic = name_of(source.topic)
    head, mark, tail = source.destination(_MARK).partition(_MARK)
    if not mark:
        named = Name(head)  # every topic that it selects goes to this one
    elif not topic.is_prefix and topic.text != EVERYTHING:
        named = Name(source.destination(topic.text))
    else:
        begin = "" if topic.text == EVERYTHING else topic.text
        meant = f"{source.topic} as {source.template}" if tail or topic.broader else ""
        named = Name(head + begin, is_prefix=True, broader=meant) if head + begin else replace(topic, broader=meant)
    yield named
    if source.on_recreate == "new-topic" and not named.is_prefix:
        yield Name(f"{named.text}.", is_prefix=True)


_LITERAL = re.compile(r"\\(?P<escaped>[^A-Za-z0-9])|\[(?P<one>[^\]\\^])\]|(?P<plain>[A-Za-z0-9_-])")
_ANYTHING = (".*", ".*$", ".+", ".+$")


def name_of(pattern: TopicPattern) -> Name:
    """The name, or the longest text that all names which the expression matches begin with."""
    if not pattern.is_expression:
        return Name(pattern.text)
    rest, text = pattern.text.removeprefix("^"), ""
    if _has_choice(rest):
        return Name(EVERYTHING, broader=pattern.text)
    while (sign := _LITERAL.match(rest)) is not None:
        follows = rest[sign.end() : sign.end() + 1]
        if follows and follows in "*?{":
            break
        text += sign["escaped"] or sign["one"] or sign["plain"]
        rest = rest[sign.end() :]
        if follows == "+":
            break
    if rest in ("", "$"):
        return Name(text)
    broader = "" if rest in _ANYTHING else pattern.text
    return Name(text, is_prefix=True, broader=broader) if text else Name(EVERYTHING, broader=broader)


def _has_choice(expression: str) -> bool:
    """Whether a `|` stands outside of brackets and parentheses."""
    depth = 0
    for sign in re.sub(r"\\.|\[[^\]]*\]", "", expression):
        depth += (sign == "(") - (sign == ")")
        if sign == "|" and depth == 0:
            return True
    return False


def _camel(operation: str) -> str:
    """`DESCRIBE_CONFIGS` as kafka-acls.sh writes it: DescribeConfigs."""
    return "".join(part.capitalize() for part in operation.split("_"))


def as_json(acl: Acl) -> Mapping[str, object]:
    pattern = "PREFIXED" if acl.name.is_prefix else "LITERAL"
    found: dict[str, object] = {
        "resource_type": acl.kind.upper().replace("-", "_"),
        "pattern_type": pattern,
        "name": acl.name.text,
        "operations": list(acl.operations),
    }
    if acl.without:
        found["without"] = acl.without
    if acl.name.broader:
        found["broader_than"] = acl.name.broader
    return found
