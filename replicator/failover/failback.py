"""Consumer groups that moved here go back to where they came from, at the exact record.

    the region they moved to                       the region they go back to
    failback execute --to A                        failback execute --from B
    committed offsets ─ inverse of the map ─> handover, in the bucket ══> committed, for groups that are inactive

Nothing but the bucket lies between the two, so each region does its half. The second half also commits the groups'
offsets in what was produced at B meanwhile, which ingress at A delivers, as a failover from B would.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from formats.control.claim import UNREADABLE, TopicClaim
from formats.control.group_snapshot import (
    CommittedOffset,
    GroupSnapshot,
    SnapshotGroup,
    TopicCommits,
    decode_group_snapshot,
    encode_group_snapshot,
)
from formats.control.keys import groups_prefix, handovers_prefix
from formats.errors import OF_ONE_OBJECT, BrokerUnavailable, MalformedEvent, SegmentNotFound, TargetError
from formats.incarnation import parse_incarnation
from formats.messages.ledger import Failover, FailoverPhase, Ownership
from formats.segment import SourcePartition
from infra.archive.control_objects import naming
from infra.archive.generation_history import group_history
from infra.archive.generations import Generations
from infra.contracts.internal_topics import Ledger
from ingress.groups.sync_plan import INACTIVE
from ingress.groups.translation import Exactness
from replicator.egress_topics import described
from replicator.failover.archive_paths import PathsThere, before_the_fork, paths_there, unknown_there
from replicator.first_few import first_few
from replicator.offsets import TranslatedOffset, TranslatedOffsets
from replicator.services.clients import Clients


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoverPlan:
    """The first half, at the region that the groups moved to. `state`: of the failover."""

    to: str
    here: str
    now: datetime
    state: Failover | None
    groups: Mapping[str, Sequence[TranslatedOffset]] = field(default_factory=dict)
    active: Mapping[str, str] = field(default_factory=dict)  # groups that are in use here, and how
    unseen: Mapping[str, str] = field(default_factory=dict)  # groups that moved here and are not listed, and why
    listing_problem: str = ""  # why groups may be missing, here or in what is known of the failover
    kinds: Mapping[str, str] = field(default_factory=dict)  # by group
    topic_ids: Mapping[str, str] = field(default_factory=dict)  # of the other region's topics, by archive path
    superseded: Collection[str] = ()  # archive paths of topics that were created again in the other region
    flows_back: bool = False  # egress is configured here
    unarchived: Mapping[str, int] = field(default_factory=dict)  # by group: offsets it has read here of topics that
    # egress archives, and that egress has not archived
    hidden: Mapping[str, str] = field(default_factory=dict)  # topics that egress archives and that may not be described

    @property
    def is_done(self) -> bool:
        return self.state is not None and self.state.phase is FailoverPhase.FAILED_BACK

    @property
    def problems(self) -> Sequence[str]:
        return [] if self.is_done else list(self._problems())

    def _problems(self) -> Iterator[str]:
        if self.state is None:
            yield f"there was no failover from {self.to} here"
        elif self.state.phase is not FailoverPhase.ACTIVE:
            yield f"the failover from {self.to} is not finished: `replicator failover execute --from {self.to}`"
        elif self.state.left:
            yield f"of the failover groups are left: {', '.join(self.state.left)}"
        for group, how in self.active.items():
            yield f"group {group} is {how} here: stop its consumers first"
        for group, some in self.groups.items():
            for one in some:
                if one.source and source_of(one).path in self.superseded:
                    yield f"group {group} in {one.target}: {one.source} was deleted in {self.to}, and created again"
                elif one.exactness is not Exactness.EXACT:
                    yield f"group {group} in {one.target}: {_why_inexact(one, self)}"
            for source, offsets in _differing(some, self.topic_ids).items():
                yield (
                    f"group {group} is at offset {' and '.join(map(str, offsets))} of {source}, in different "
                    f"destinations: it is handed over at {offsets[0]}, and reads again what is between"
                )
        for group, count in self.unarchived.items():
            yield (
                f"group {group} has read {count} offsets of topics of {self.here} that egress has not archived: wait "
                f"until `replicator status` shows no lag there, or it continues before them in {self.to}"
            )
        if self.hidden:
            where, (topic, why) = first_few(sorted(self.hidden), 3), min(self.hidden.items())
            yield (
                f"whether groups have read what egress has not archived is not known of {where} "
                f"({topic}: {why}): allow DESCRIBE on the topics that egress archives"
            )
        for group, why in self.unseen.items():
            yield f"group {group} is not handed over: {why}"
        if self.listing_problem:
            yield f"groups may be missing: {self.listing_problem}"
        if not self.flows_back:
            yield (
                "this file has no [egress]: what was produced here does not flow back; where nothing was, this is as "
                "it should be, and --give-up says so"
            )


@dataclass(slots=True, kw_only=True)
class Handover:
    """Use from one thread."""

    clients: Clients
    to: str
    ledger: Ledger

    def plan(self, now: datetime) -> HandoverPlan:
        """Raises what `TranslatedOffsets.open` raises."""
        clients, config = self.clients, self.clients.config
        translated = TranslatedOffsets.open(clients, self.to)
        owned = self.ledger.read()
        state = owned.failover_of(self.to)
        partitions = [one for one in translated.lookup.ends if one.topic in translated.routes]
        listing = clients.groups.listing()
        kinds = listing.kinds
        moved, not_known = (kinds.keys(), "") if state is None else self._moved(owned, state, translated.routes.keys())
        paths = paths_there(self.to, [route for some in translated.routes.values() for route in some], self._claim)
        groups: dict[str, Sequence[TranslatedOffset]] = {}
        active: dict[str, str] = {}
        for group in sorted((kinds.keys() & set(moved)) - set(_own_groups(clients))):
            facts = clients.groups.facts(group)
            committed = clients.groups.committed(group, partitions)
            if not committed:
                continue
            groups[group] = [
                self._there(
                    replace(translated.of_commit(partition, one.next_offset), group=group, metadata=one.metadata),
                    translated,
                    paths,
                )
                for partition, one in sorted(committed.items())
            ]
            if facts.members or facts.state not in INACTIVE:
                active[group] = f"{facts.state}, with {facts.members} members,"
        named = {source_of(one).path for some in groups.values() for one in some if one.source}
        unarchived, hidden = self._unarchived(groups, translated.routes.keys())
        return HandoverPlan(
            to=self.to,
            here=config.region,
            now=now,
            state=state,
            groups=groups,
            active=active,
            unseen={} if state is None else self._unseen(set(moved) - kinds.keys() - set(_own_groups(clients))),
            listing_problem="; ".join(filter(None, (listing.problem, not_known))),
            kinds=kinds,
            topic_ids={path: translated.topic_ids.of(self.to, path) or "" for path in named},
            superseded=paths.superseded,
            flows_back=config.egress is not None,
            unarchived=unarchived,
            hidden=hidden,
        )

    def _claim(self, path: str) -> TopicClaim | None:
        try:
            return self.clients.control.claims.of(self.to, path)
        except OF_ONE_OBJECT:
            return None  # `_there` says so of its offsets

    def _there(self, one: TranslatedOffset, translated: TranslatedOffsets, paths: PathsThere) -> TranslatedOffset:
        """As an offset of the log that the topic has there now."""
        if not one.source:
            return one
        source = source_of(one)
        if translated.topic_ids.of(self.to, source.path) == UNREADABLE:
            why = (
                f"the claim of {self.to}/{source.path} cannot be read, so whether the offset is one of the topic there"
            )
            return unknown_there(one, f"{why} is not known")
        if source.path not in paths.before_fork:
            return one
        try:
            forks = self.clients.control.forks.of(source)
        except OF_ONE_OBJECT as error:
            return unknown_there(one, f"the log has forked there, and where is not known: {error}")
        return before_the_fork(one, min(fork.contested.start for fork in forks)) if forks else one

    def _unarchived(
        self, groups: Collection[str], destinations: Collection[str]
    ) -> tuple[Mapping[str, int], Mapping[str, str]]:
        """See `HandoverPlan.unarchived` and `hidden`. Not of `destinations`, whose records came from there. Read in
        this order: what is archived only grows."""
        clients = self.clients
        config, admin, reader = clients.config, clients.admin, clients.groups
        if config.egress is None or not groups:
            return {}, {}
        claimed = clients.control.claims.paths(config.region)
        topics, refused = described(admin, claimed, config.egress, config.own_topics)
        hidden = {name: str(error) for name, error in refused.items() if name not in destinations}
        partitions = [at for name, one in topics.items() if name not in destinations for at in one.partitions]
        read = {group: reader.committed(group, partitions) for group in groups}
        archived = reader.committed(config.egress.group_id, partitions)
        found = {
            group: sum(
                max(one.next_offset - (archived[at].next_offset if at in archived else 0), 0)
                for at, one in some.items()
            )
            for group, some in read.items()
        }
        return {group: count for group, count in found.items() if count}, hidden

    def _unseen(self, groups: Collection[str]) -> Mapping[str, str]:
        """Those that exist, or may: a listing leaves out what a broker does not answer, or this principal may not
        describe."""
        found = {}
        for group in sorted(groups):
            try:
                facts = self.clients.groups.facts(group)
            except (BrokerUnavailable, TargetError) as error:
                found[group] = str(error)
            else:
                if facts.is_known:
                    found[group] = f"it is {facts.state}, and not among the groups that the cluster lists"
        return found

    def _moved(self, owned: Ownership, state: Failover, topics: Collection[str]) -> tuple[Collection[str], str]:
        """Groups that the failover was about, or that were ever written here for the other region: others that read its
        topics are this region's own, and stay. And why some may be missing."""
        written = {group for group, topic in owned.groups if topic in topics}
        if not state.snapshot:
            return written, ""
        objects, prefix = self.clients.objects, self.clients.config.s3.prefix
        try:
            chosen = Generations(objects, groups_prefix(prefix, self.to)).read(state.snapshot)
            return written | decode_group_snapshot(chosen).groups.keys(), ""
        except (SegmentNotFound, MalformedEvent) as error:
            # thinned since, most likely: those beside it have the same groups
            history = group_history(objects, prefix, self.to)
            beside = [next(some, None) for some in (history.earlier(state.snapshot), history.later(state.snapshot))]
            found = [snapshot.groups.keys() for _, snapshot in filter(None, beside)]
            if found:
                return written.union(*found), ""
            return written, (
                f"the group snapshot {state.snapshot} of the failover cannot be read any more ({error}), and groups "
                f"that were further here than in {self.to} by then are in no other record"
            )

    def execute(self, plan: HandoverPlan) -> int:
        """Store where the groups are, and end the failover; the generation of the handover. Active groups are left
        out. The same again does nothing. Raises StoreUnavailable, BrokerUnavailable, TargetError, and ConfigError when
        the bucket lets objects be overwritten."""
        if plan.state is not None and plan.is_done:
            return plan.state.handover
        self.clients.require_conditional_writes()
        generations = Generations(
            self.clients.objects, handovers_prefix(self.clients.config.s3.prefix, plan.here, plan.to)
        )
        snapshot = _snapshot(plan, self.clients.cluster_id)
        number = _stored(generations, snapshot)
        before = plan.state or Failover(region=plan.to, epoch=0, phase=FailoverPhase.ACTIVE, at=plan.now)
        # stored first: a crash in between leaves a handover that the next run stores again, as the same
        self.ledger.write([replace(before, phase=FailoverPhase.FAILED_BACK, handover=number, left=())])
        return number


def source_of(one: TranslatedOffset) -> SourcePartition:
    """Of one that has a source."""
    region, path, partition = one.source.split("/")
    return SourcePartition.of(region, parse_incarnation(path), int(partition))


def _is_known_there(one: TranslatedOffset) -> bool:
    """Whether it may be committed there. What was removed here may be there still: the first record that is left here
    lies behind it."""
    return one.source_offset is not None and one.exactness is not Exactness.TRIMMED


def _why_inexact(one: TranslatedOffset, plan: HandoverPlan) -> str:
    if one.exactness is Exactness.TRIMMED:
        return (
            f"records that it had yet to read were removed in {plan.here}, and {plan.to} may have them still: it is "
            f"not handed over, and goes on in {plan.to} where it stands there"
        )
    return one.reason or one.exactness.value


def _differing(some: Sequence[TranslatedOffset], topic_ids: Mapping[str, str]) -> Mapping[str, Sequence[int]]:
    """By partition of the other region, the offsets of a group in several destinations, where they are not the same.
    Paths before and after a fork are of one topic."""
    found: dict[tuple[str, int, str], dict[int, str]] = {}
    for one in some:
        if one.source and one.source_offset is not None:
            source = source_of(one)
            key = (source.topic, source.partition, topic_ids.get(source.path) or source.path)
            found.setdefault(key, {}).setdefault(one.source_offset, one.source)
    return {min(offsets.values()): sorted(offsets) for offsets in found.values() if len(offsets) > 1}


def newest_handover(clients: Clients, of: str) -> tuple[int, GroupSnapshot | None]:
    """What the region `of` handed over to this one, as far as it arrived: its generation; 0 and None: nothing. Raises
    StoreUnavailable, and MalformedEvent, which names the object, for what is damaged or of a newer program."""
    config = clients.config
    generations = Generations(clients.objects, handovers_prefix(config.s3.prefix, of, config.region))
    number = generations.newest()
    try:
        with naming(generations.key(number)):
            return number, decode_group_snapshot(generations.read(number)) if number else None
    except SegmentNotFound:
        return 0, None


def _snapshot(plan: HandoverPlan, cluster_id: str) -> GroupSnapshot:
    """Offsets of the other region, by its topics and their ids."""
    groups, problems = {}, dict[str, str]()
    unreadable = {group: f"it was {how} in {plan.here}" for group, how in plan.active.items()} | dict(plan.unseen)
    for group, some in plan.groups.items():
        topics: dict[tuple[str, str], dict[int, CommittedOffset]] = {}
        # of one partition in several destinations, what is not known of one is not known
        unknown = {one.source for one in some if not _is_known_there(one)}
        for one in some:
            if one.source_offset is None or one.source in unknown or group in plan.active:
                continue
            source = source_of(one)
            if source.path in plan.superseded:
                continue  # the topic there has none of these records
            commits = topics.setdefault((source.topic, plan.topic_ids.get(source.path, "")), {})
            found = CommittedOffset(next_offset=one.source_offset, metadata=one.metadata)
            # of several destinations the lowest: nothing is left out
            commits[source.partition] = min(
                found, commits.get(source.partition, found), key=lambda commit: commit.next_offset
            )
        if topics:
            groups[group] = SnapshotGroup(
                kind=plan.kinds[group],
                state="empty",
                members=0,
                topics={topic: TopicCommits.of(topic_id, some) for (topic, topic_id), some in topics.items()},
            )
            problems |= {
                f"{group} in {one.source or one.target}": _why_inexact(one, plan)
                for one in some
                if not _is_known_there(one)
            }
        elif group not in unreadable:
            whys = [_why_inexact(one, plan) for one in some if not _is_known_there(one)]
            why = next(iter(whys), f"its topics were created again in {plan.to}")
            unreadable[group] = f"where it continues is not known: {why}"
    return GroupSnapshot(
        cluster_id=cluster_id,
        writer=f"{plan.here}, failover {0 if plan.state is None else plan.state.epoch}",
        observed_at=plan.now,
        groups=groups,
        unreadable=unreadable,
        problems=problems,
    )


def _stored(generations: Generations, snapshot: GroupSnapshot) -> int:
    """A handover of the same failover with the same offsets is the same: it was stored by a run that died then."""
    while True:
        number = generations.newest()
        try:
            before = decode_group_snapshot(generations.read(number)) if number else None
        except MalformedEvent:
            before = None  # the next one counts instead of it
        if before is not None and before.writer == snapshot.writer and before.has_same_content(snapshot):
            return number
        if generations.put(number + 1, encode_group_snapshot(snapshot)):
            return number + 1


def _own_groups(clients: Clients) -> Collection[str]:
    config = clients.config
    own = [] if config.ingress is None else [config.ingress.group_id]
    return {*own, *([] if config.egress is None else [config.egress.group_id])}
