"""One of the `[[ingress.sources]]`: topics of one region's archive, and how they arrive."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Literal

from formats.errors import PluginFailed
from formats.incarnation import fork_id, fork_number
from formats.policies.filters import topic_filter
from formats.policies.named_policies import replication_policy
from formats.policies.names import LegacyReplicationPolicy, ReplicationPolicy, hops, is_cycle
from formats.topic_selection import DEFAULT_EXCLUDES, TopicPattern, TopicRule
from infra.settings.field import Problem, enforce, matching, not_blank, region_name, setting

TOPIC = "{topic}"  # replaced by the source topic's name in a destination
TOPIC_ID_CHARS = 8  # characters of a topic id in the name of a destination for one incarnation
DEFAULT_DESTINATION = f"{TOPIC}.ingress"
DEFAULT_SEPARATOR = "."

_destination = matching(
    r"(?=.)[A-Za-z0-9._-]{0,249}(\{topic\}[A-Za-z0-9._-]{0,249})?", f'a topic name, which may contain "{TOPIC}" once'
)
_header_name = matching(r"[^\x00]{0,249}", "at most 249 characters without a NUL")  # the client cuts a name at one
policy_separator = matching(r"[A-Za-z0-9._-]{1,64}", "1 to 64 of A-Z a-z 0-9 . _ -")


@dataclass(frozen=True, slots=True, kw_only=True)
class IngressSource:
    """Topics of one region's archive, and how they arrive."""

    region: str = field(metadata=setting("region whose archive is read", check=region_name))
    topic: TopicPattern = field(metadata=setting("a topic name, or an expression that begins with ^"))
    exclude: tuple[TopicPattern, ...] = field(
        default=(),
        metadata=setting("topics that this source does not deliver, though `topic` matches: names or ^expressions"),
    )
    topic_filter: str | None = field(
        default=None,
        metadata=setting(
            '"package.module:Class", or an entry point of replicator.filters, that excludes topics, too, by '
            "should_replicate_topic(name)"
        ),
    )
    destination_topic: str | None = field(
        default=None,
        metadata=setting(
            f'topic here, whatever the replication policy; with an expression it must contain "{TOPIC}"; default: the '
            f'name of the policy, or "{DEFAULT_DESTINATION}" without one',
            check=_destination,
        ),
    )
    replication_policy: str | None = field(
        default=None,
        metadata=setting(
            'names of the topics here: "default" = <alias><separator><topic>, "identity" = <topic>, '
            '"LegacyReplicationPolicy" = <topic>, and nothing but records crosses, "package.module:Class", or an entry '
            "point of replicator.policies; default: that of [ingress]",
            check=not_blank,
        ),
    )
    replication_policy_separator: str | None = field(
        default=None,
        metadata=setting(
            "between alias and topic in a remote name; default: that of [ingress]", check=policy_separator
        ),
    )
    alias: str | None = field(
        default=None,
        metadata=setting("name of the source cluster in remote names; default: the region", check=region_name),
    )
    partitions: int | None = field(
        default=None,
        metadata=setting("partitions of a destination topic that we create; default: as many as the source", minimum=1),
    )
    lost_segment_timeout: timedelta = field(
        default=timedelta(hours=24),
        metadata=setting("how long a missing segment is waited for before `on_lost` decides"),
    )
    late_segment_retries: int = field(
        default=16,
        metadata=setting(
            "listings made for a missing segment until lost_segment_timeout, ever further apart", minimum=0
        ),
    )
    first_segment_delay: timedelta = field(
        default=timedelta(minutes=30),
        metadata=setting(
            "how long a partition without a checkpoint waits for segments before the first known one",
            minimum=timedelta(0),
        ),
    )
    allow_merge: bool = field(
        default=False,
        metadata=setting(
            "whether its topics may share a destination with others that allow it, too: partition i of each goes to "
            "partition i, each in its own order, in no order among them"
        ),
    )
    ignore_lineage: bool = field(
        default=False,
        metadata=setting(
            "whether topics are delivered although their records once came from this cluster, or arrive from another "
            "region, too: for a fail-back, once the other direction has ended",
            reloads=True,
        ),
    )
    heartbeats: bool = field(
        default=True,
        metadata=setting(
            "whether heartbeats of its region are written here, as MirrorMaker 2 does it: to `heartbeats`, and to "
            "<alias><separator>heartbeats when one has arrived; only with a replication_policy"
        ),
    )
    on_lost: Literal["stop", "skip"] = field(
        default="stop",
        metadata=setting("what a lost segment does: stop = its partition waits for an operator; skip = omit it"),
    )
    on_recreate: Literal["stop", "follow", "new-topic"] = field(
        default="stop",
        metadata=setting(
            "what is done with a later incarnation of a topic that was deleted and created again, or whose log forked "
            "at the source: stop = nothing of it is delivered; follow = into the same topic, after everything of the "
            "previous incarnation, once first_segment_delay has passed; new-topic = into a separate topic, "
            "<destination>.<first 8 of the topic id>, after a fork with its number: <destination>.<first 8>-fork1"
        ),
    )
    on_foreign_data: Literal["stop", "append"] = field(
        default="stop",
        metadata=setting(
            "what a partition without a checkpoint does when its destination partition already holds records: stop = "
            "it waits for `replicator checkpoints seed`; append = everything archived is delivered after them"
        ),
    )
    offsets: Literal["map", "preserve"] = field(
        default="map",
        metadata=setting(
            "offsets of records here: map = those that this cluster gives, and a map translates the offsets of "
            "consumer groups; preserve = those of the source, holes included, onto topics without another writer"
        ),
    )
    on_timestamp: Literal["stop", "clamp"] = field(
        default="stop",
        metadata=setting("when the target refuses a record's timestamp: stop, or clamp it to the accepted range"),
    )

    transform: str = field(
        default="",
        metadata=setting(
            '"package.module:function" that changes or leaves out records on their way, an Arrow batch at a time; "" = '
            "none, also where [ingress.defaults] has one"
        ),
    )
    lineage_header: str = field(
        default="",
        metadata=setting(
            'name of a header, such as "replicator.source", that each record gets as its last one: which record of '
            'which source cluster it is; "" = none, also where [ingress.defaults] has one',
            check=_header_name,
        ),
    )

    def __post_init__(self) -> None:
        enforce(self, self._contradictions())

    def destination(self, topic: str, incarnation: str = "") -> str:
        """Destination name of the source topic `topic`, or of a later incarnation of it. Raises PluginFailed, when a
        user's replication policy fails."""
        policy = self.policy
        if policy is not None:
            name = policy.format_remote_topic(self.source_alias, topic)
        else:
            name = (self.destination_topic or DEFAULT_DESTINATION).replace(TOPIC, topic)
        if not incarnation or self.on_recreate != "new-topic":
            return name
        fork = fork_number(incarnation)
        return f"{name}.{fork_id(incarnation[:TOPIC_ID_CHARS], fork) if fork else incarnation[:TOPIC_ID_CHARS]}"

    @property
    def rule(self) -> TopicRule[IngressSource]:
        filters = () if self.topic_filter is None else (topic_filter(self.topic_filter),)
        return TopicRule(self.topic, self, (*self.exclude, *filters), DEFAULT_EXCLUDES)

    def refusal(self, topic: str, here: str) -> str:
        """Why its replication policy does not let `topic` come to the region `here`; empty when it does. Not of a
        source with a destination_topic: that names a topic on purpose. Raises PluginFailed."""
        policy = self.policy
        if policy is None:
            return ""
        if is_cycle(policy, topic, here):
            way = " <- ".join(hops(policy, topic))
            return (
                f"it went through {here} before, by its name (from {way}): delivered, it would go round for ever. If "
                f"{topic} is a local topic of {self.region} that is only called so, deliver it by a source of its own "
                "with a destination_topic"
            )
        if self.topic.is_expression and policy.is_internal_topic(topic):
            return "it is an internal topic of the replication policy, which no expression selects"
        if self.topic.is_expression and topic == self._heartbeats_name:
            return (
                f"heartbeats of {self.region} arrive through the bucket. To deliver the records of its topic {topic} "
                "instead, name it in a source of its own"
            )
        return ""

    @property
    def template(self) -> str:
        """Its destinations, with "{topic}" for the topic's name. Of a user's policy only that of a topic which has this
        name: its conflicts show when both topics exist."""
        try:
            return self.destination(TOPIC)
        except PluginFailed:
            return f"{self.replication_policy} of {self.source_alias}"

    @property
    def source_alias(self) -> str:
        return self.alias or self.region

    @property
    def policy(self) -> ReplicationPolicy | None:
        """The policy that names its topics; None where `destination_topic` does, or where neither is set."""
        return None if self.destination_topic is not None else self._policy

    @property
    def _policy(self) -> ReplicationPolicy | None:
        if self.replication_policy is None:
            return None
        separator = self.replication_policy_separator or DEFAULT_SEPARATOR
        return replication_policy(self.replication_policy, self.source_alias, separator)

    @property
    def syncs_nothing(self) -> bool:
        """Whether nothing but records may cross: no configs, ACLs, groups or heartbeats."""
        return isinstance(self._policy, LegacyReplicationPolicy)

    @property
    def heartbeat_topics(self) -> tuple[str, str] | None:
        """Topics of this cluster for heartbeats: of the flow itself, and of its source. None where none are written.
        Raises PluginFailed."""
        policy = self._policy
        if policy is None or self.syncs_nothing or not self.heartbeats:
            return None
        topic = policy.heartbeats_topic()
        return topic, policy.format_remote_topic(self.source_alias, topic)

    @property
    def _heartbeats_name(self) -> str | None:
        """Of the source's own topic of heartbeats; None where none of its heartbeats are written here."""
        try:
            topics = self.heartbeat_topics
        except PluginFailed:
            return None
        return None if topics is None else topics[0]

    @property
    def preserves_offsets(self) -> bool:
        return self.offsets == "preserve"

    @property
    def changing(self) -> str:
        """What its records get or lose on their way, for people; empty: nothing."""
        changes = [f"changed by transform {self.transform}"] if self.transform else []
        changes += [f"with header {self.lineage_header}"] if self.lineage_header else []
        return ", ".join(changes)

    @property
    def naming(self) -> str:
        """What decides the names of its topics here, for people."""
        if self.destination_topic is not None:
            return f"named by destination_topic {self.destination_topic!r}"
        if self.replication_policy is None:
            return f"named {DEFAULT_DESTINATION!r}, as neither destination_topic nor replication_policy is set"
        separator = self.replication_policy_separator or DEFAULT_SEPARATOR
        return (
            f"named by the replication policy {self.replication_policy!r} with alias {self.source_alias!r} and "
            f"separator {separator!r}"
        )

    def completed(self, policy: str | None, separator: str) -> IngressSource:
        """The same with the policy and separator of [ingress] where it has none. Raises Invalid."""
        policy = self.replication_policy or policy
        if policy is None:
            return self
        separator = self.replication_policy_separator or separator
        return replace(self, replication_policy=policy, replication_policy_separator=separator)

    def _contradictions(self) -> Iterator[Problem]:
        if self.replication_policy is not None and self.replication_policy.strip():
            try:
                _ = self._policy
            except ValueError as error:
                yield "replication_policy", str(error)
        if self.topic_filter is not None:
            try:
                topic_filter(self.topic_filter)
            except ValueError as error:
                yield "topic_filter", str(error)
        if self.transform:
            from formats.records.transform import transform_named  # noqa: PLC0415 -- loads Arrow, which few files need

            try:
                transform_named(self.transform)
            except ValueError as error:
                yield "transform", str(error)
        yield from self._not_preserved()
        is_one = self.destination_topic is not None and TOPIC not in self.destination_topic
        if self.topic.is_expression and is_one and not self.allow_merge:
            yield (
                "destination_topic",
                f"{self.destination_topic!r} is one topic for every topic that {self.topic} matches: write it with "
                f'"{TOPIC}", such as "{TOPIC}.copy", or merge them on purpose with allow_merge = true',
            )

    def _not_preserved(self) -> Iterator[Problem]:
        """What does not go with the offsets of the source."""
        if not self.preserves_offsets:
            return
        if self.allow_merge:
            yield "allow_merge", "offsets = 'preserve' needs a destination of its own: leave allow_merge out"
        if self.transform:
            yield (
                "transform",
                "may leave out records, and with offsets = 'preserve' each of them is a hole to be filled one by one: "
                "leave one of the two out",
            )
        if self.partitions is not None:
            yield (
                "partitions",
                "offsets = 'preserve' keeps the source's partitions: leave it out, the destination gets as many",
            )
        if self.on_recreate == "follow":
            yield (
                "on_recreate",
                "'follow' continues with a topic whose offsets begin again, which offsets = 'preserve' cannot keep: "
                "set 'new-topic' or 'stop'",
            )
        if self.on_foreign_data == "append":
            yield "on_foreign_data", "'append' begins after other records, at other offsets: leave it out"
