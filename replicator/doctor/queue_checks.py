"""Checks of the way from a bucket to its queue: notifications, policy, queue, and what became of a probe. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from fnmatch import fnmatchcase
from typing import Any

from formats.segment import region_prefix
from infra.contracts.deployment import Notification, Notifications
from replicator.doctor.facts import DeploymentFacts, QueueFacts, Unread, known
from replicator.doctor.findings import Check, Diagnosis, Kind, Severity

ERROR, WARNING = Severity.ERROR, Severity.WARNING

UNREACHABLE = Kind(
    "queue-unreachable",
    ERROR,
    "new segments are found by listings only, minutes late",
    "repair what the reason names: queue, credentials, endpoint or network",
)
NOT_NOTIFIED = Kind(
    "notification-missing",
    ERROR,
    "new segments of that region are found by listings only, minutes late",
    "add a notification of s3:ObjectCreated:* for the region's prefix to the queue of [sqs] or [sync.queue], as "
    "infra/deploy/aws/target-region.yaml does",
)
NOTIFIED_IN_PART = Kind(
    "notification-of-a-part",
    ERROR,
    "segments outside of the filter are found by listings only, minutes late",
    "widen the filter to the region's prefix, without a suffix",
)
NOT_ALL_CREATED = Kind(
    "notification-of-some-events",
    ERROR,
    "a segment above s3.part_size is stored by CompleteMultipartUpload, a small one by Put; S3 replication does either",
    "notify of s3:ObjectCreated:*",
)
NOT_REMOVED = Kind(
    "notification-not-of-removals",
    WARNING,
    "ingress opens small segments that compaction has removed before it finds the merged one",
    "notify of s3:ObjectRemoved:*, too",
)
NOT_ALLOWED = Kind(
    "queue-refuses-bucket",
    ERROR,
    "S3 may not send to the queue: notifications are lost without an error, and segments are found by listings only",
    "allow sqs:SendMessage to the service s3.amazonaws.com in the queue's policy, with the bucket as aws:SourceArn",
)
OPEN = Kind(
    "queue-open-to-all",
    WARNING,
    "anyone with an AWS account may send to the queue; ingress takes no key for true without its object, but the "
    "messages cost",
    "allow sqs:SendMessage to s3.amazonaws.com alone, with the bucket as aws:SourceArn",
)
VISIBILITY = Kind(
    "queue-visibility-short",
    WARNING,
    "a message that is not handled in that time (ingress publishes it, sync copies its object) is received again, and "
    "goes to the dead-letter queue after some times",
    "set VisibilityTimeout to 60 s",
)
RETENTION = Kind(
    "queue-retention-short",
    WARNING,
    "an outage of ingress or sync that is longer loses notifications, whose segments are then found by listings only",
    "set MessageRetentionPeriod to 14 days",
)
NO_DEAD_LETTERS = Kind(
    "queue-without-dead-letter-queue",
    WARNING,
    "a message that cannot be understood comes back again and again",
    "add a dead-letter queue with a RedrivePolicy of 10 receives",
)
DEAD_LETTERS = Kind(
    "queue-has-dead-letters",
    WARNING,
    "messages could not be understood (the log event is malformed_notification), or were not handled 10 times",
    "read them, repair their cause, then send them back (StartMessageMoveTask), or delete them",
)
PROBE_LOST = Kind(
    "notification-probe-lost",
    ERROR,
    "new segments are found by listings only, minutes late",
    "check the bucket's notifications and the queue's policy; that ingress runs, is of this version, and may put "
    "control objects of its own region",
)

SHORTEST_VISIBILITY, SHORTEST_RETENTION = timedelta(seconds=30), timedelta(days=1)
_CREATED, _REMOVED = "s3:ObjectCreated:", "s3:ObjectRemoved:"
_NEEDED = {f"{_CREATED}Put", f"{_CREATED}CompleteMultipartUpload"}
_SENDS = {"sqs:sendmessage", "sqs:*", "*"}
_SERVICE = {"queue": "s3.amazonaws.com", "topic": "sns.amazonaws.com", "bridge": "events.amazonaws.com"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Way:
    """From the bucket to one queue. `regions`: whose objects are notified. `of_removals`: removals matter, too."""

    queue: QueueFacts
    regions: Sequence[str]
    of_removals: bool
    has_arrived: bool  # some probe did

    @property
    def where(self) -> str:
        return f"queue {self.queue.name}"


def _to_ingress(facts: DeploymentFacts) -> _Way | None:
    if facts.queue is None:
        return None
    ingress = facts.config.ingress
    arrived = not isinstance(facts.probes, Unread) and any(one.arrived_at for one in facts.probes)
    return _Way(
        queue=facts.queue,
        regions=() if ingress is None else ingress.regions,
        of_removals=True,
        has_arrived=arrived,
    )


def _to_sync(facts: DeploymentFacts) -> _Way | None:
    """It copies this region's archive, and takes no removal for news."""
    if facts.sync_queue is None:
        return None
    return _Way(queue=facts.sync_queue, regions=[facts.config.region], of_removals=False, has_arrived=False)


def _bucket(facts: DeploymentFacts) -> str:
    return f"bucket {facts.bucket.settings.bucket}"


def reachable(_: DeploymentFacts, way: _Way) -> Iterator[Diagnosis]:
    setup = way.queue.setup
    if isinstance(setup, Unread):
        yield UNREACHABLE.at(way.where, setup.reason)


def notifications(facts: DeploymentFacts, way: _Way) -> Iterator[Diagnosis]:
    found = known(facts.bucket.notifications)
    arn = known(way.queue.setup).arn
    for region in way.regions:
        yield from _of_region(facts, found, arn, region, of_removals=way.of_removals)


def _of_region(
    facts: DeploymentFacts, found: Notifications, arn: str, region: str, *, of_removals: bool
) -> Iterator[Diagnosis]:
    prefix, bucket = region_prefix(facts.bucket.settings.prefix, region), _bucket(facts)
    ways = [one for one in found.queues if one.to == arn] + list(found.topics)
    if found.to_event_bridge and not ways:
        return  # its rules are elsewhere: the probe tells
    created = [one for one in ways if any(_matches(one, event) for event in _NEEDED)]
    whole = [one for one in created if prefix.startswith(one.prefix) and not one.suffix]
    part = [
        one for one in created if one not in whole and (one.prefix.startswith(prefix) or prefix.startswith(one.prefix))
    ]
    if not whole and part:
        limits = ", ".join(f"{one.prefix}*{one.suffix}" for one in part)
        yield NOTIFIED_IN_PART.at(bucket, f"of region {region}, only {limits} is notified, and not all of {prefix}")
    elif not whole:
        elsewhere = sorted({one.to for one in found.queues if one.to != arn})
        others = f"; it notifies {', '.join(elsewhere)}" if elsewhere else ""
        yield NOT_NOTIFIED.at(bucket, f"nothing below {prefix} is notified to {arn}{others}")
    elif missing := sorted(event for event in _NEEDED if not any(_matches(one, event) for one in whole)):
        yield NOT_ALL_CREATED.at(bucket, f"below {prefix}, not notified: {', '.join(missing)}")
    if of_removals and whole and not any(event.startswith(_REMOVED) for one in ways for event in one.events):
        yield NOT_REMOVED.at(bucket, f"below {prefix}, removals are not notified")


def _matches(one: Notification, event: str) -> bool:
    return any(fnmatchcase(event, pattern) for pattern in one.events)


def policy(facts: DeploymentFacts, way: _Way) -> Iterator[Diagnosis]:
    setup = known(way.queue.setup)
    if way.has_arrived:
        return  # a message has arrived: S3 may send
    ways = known(facts.bucket.notifications)
    kinds = ["queue", *(["topic"] if ways.topics else []), *(["bridge"] if ways.to_event_bridge else [])]
    services = {_SERVICE[kind] for kind in kinds}
    bucket_arn = f"arn:{_partition(setup.arn)}:s3:::{facts.bucket.settings.bucket}"
    try:
        statements = _listed(json.loads(setup.policy or "{}").get("Statement"))
    except ValueError as error:
        yield NOT_ALLOWED.at(way.where, f"the queue's policy is not JSON: {error}")
        return
    sends = [one for one in statements if _SENDS & {action.lower() for action in _listed(one.get("Action"))}]
    allows = [one for one in sends if one.get("Effect") == "Allow"]
    open_to_all = [one for one in allows if _everyone(one.get("Principal")) and not one.get("Condition")]
    named = [one for one in allows if _everyone(one.get("Principal")) or services & _services(one.get("Principal"))]
    if open_to_all:
        yield OPEN.at(way.where, "its policy allows sqs:SendMessage to everyone, without a condition")
    elif not named:
        text = f"its policy does not allow sqs:SendMessage to {' or '.join(sorted(services))}"
        yield NOT_ALLOWED.at(way.where, text)
    elif not any(_is_of(one.get("Condition") or {}, bucket_arn, direct=kinds == ["queue"]) for one in named):
        yield NOT_ALLOWED.at(way.where, f"its policy allows sqs:SendMessage, but not from {bucket_arn}")


def _partition(arn: str) -> str:
    """Of AWS: "aws", or that of China or of the US government, which a bucket shares with its queue."""
    parts = arn.split(":")
    return parts[1] if len(parts) > 1 and parts[1].startswith("aws") else "aws"


def _is_of(condition: Mapping[str, Any], bucket_arn: str, *, direct: bool) -> bool:
    """Whether the condition on the source, if there is one, takes the bucket. Through SNS or EventBridge the source is
    another."""
    given = [
        (operator, value)
        for operator, keys in condition.items()
        for key, value in keys.items()
        if key.lower() == "aws:sourcearn"
    ]
    return not direct or all(any(fnmatchcase(bucket_arn, one) for one in _listed(value)) for _, value in given)


def _everyone(principal: Any) -> bool:
    return principal == "*" or (isinstance(principal, Mapping) and "*" in _listed(principal.get("AWS")))


def _services(principal: Any) -> set[str]:
    return set(_listed(principal.get("Service"))) if isinstance(principal, Mapping) else set()


def _listed(value: Any) -> list[Any]:
    return [] if value is None else list(value) if isinstance(value, list) else [value]


def settings(_: DeploymentFacts, way: _Way) -> Iterator[Diagnosis]:
    setup = known(way.queue.setup)
    if setup.visibility < SHORTEST_VISIBILITY:
        yield VISIBILITY.at(way.where, f"VisibilityTimeout is {setup.visibility.total_seconds():g} s")
    if setup.retention < SHORTEST_RETENTION:
        yield RETENTION.at(way.where, f"MessageRetentionPeriod is {setup.retention}")


def dead_letters(_: DeploymentFacts, way: _Way) -> Iterator[Diagnosis]:
    queue = way.queue
    setup = known(queue.setup)
    if not setup.dead_letter_arn or queue.dead_letters is None:
        yield NO_DEAD_LETTERS.at(way.where, "it has no dead-letter queue")
    elif count := known(queue.dead_letters):
        yield DEAD_LETTERS.at(f"queue {setup.dead_letter_arn.rpartition(':')[2]}", f"about {count} messages are in it")


def probe(facts: DeploymentFacts) -> Iterator[Diagnosis]:
    assert facts.queue is not None
    for one in known(facts.probes):
        if not one.arrived_at:
            stored = f"an object was stored below {region_prefix(facts.bucket.settings.prefix, one.source)}"
            late = f"its notification did not arrive within {one.waited.total_seconds():g} s"
            yield PROBE_LOST.at(f"queue {facts.queue.name}", f"{stored}, and {late}")


@dataclass(frozen=True, slots=True)
class _Part:
    """A check of the way to any queue."""

    name: str
    checks: str
    judge: Callable[[DeploymentFacts, _Way], Iterator[Diagnosis]]
    kinds: Sequence[Kind]
    of_bucket: bool = False  # what is found is about the bucket


_PARTS: Sequence[_Part] = (
    _Part("queue-reachable", "the queue answers to these credentials", reachable, (UNREACHABLE,)),
    _Part(
        "notifications",
        "the bucket notifies the queue of each source's segments",
        notifications,
        (NOT_NOTIFIED, NOTIFIED_IN_PART, NOT_ALL_CREATED, NOT_REMOVED),
        of_bucket=True,
    ),
    _Part("queue-policy", "the queue takes messages of the bucket, and of it alone", policy, (NOT_ALLOWED, OPEN)),
    _Part("queue-settings", "messages are hidden and kept for long enough", settings, (VISIBILITY, RETENTION)),
    _Part("dead-letters", "the dead-letter queue is there, and empty", dead_letters, (NO_DEAD_LETTERS, DEAD_LETTERS)),
)


def _check(head: str, way_of: Callable[[DeploymentFacts], _Way | None], part: _Part) -> Check:
    def way(facts: DeploymentFacts) -> _Way:
        found = way_of(facts)
        assert found is not None
        return found

    return Check(
        name=f"{head}{part.name}",
        checks=part.checks,
        where=lambda facts: _bucket(facts) if part.of_bucket else way(facts).where,
        judge=lambda facts: part.judge(facts, way(facts)),
        kinds=part.kinds,
        applies=lambda facts: way_of(facts) is not None,
    )


QUEUE_CHECKS: Sequence[Check] = (
    *(_check("", _to_ingress, part) for part in _PARTS),
    Check(
        name="notification-probe",
        checks="the notification of an object that was stored just now arrives",
        where=lambda facts: "" if facts.queue is None else f"queue {facts.queue.name}",
        judge=probe,
        kinds=(PROBE_LOST,),
        applies=lambda facts: facts.queue is not None,
    ),
    *(_check("sync-", _to_sync, part) for part in _PARTS),
)
