"""Checks of the way from a bucket to its queue: notifications, policy, queue, and what became of a probe. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
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
    "add a notification of s3:ObjectCreated:* for the region's prefix to the queue of [sqs], as "
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
    "a message that ingress has not published in that time is received again, and goes to the dead-letter queue after "
    "some times",
    "set VisibilityTimeout to 60 s",
)
RETENTION = Kind(
    "queue-retention-short",
    WARNING,
    "an outage of ingress that is longer loses notifications, whose segments are then found by listings only",
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
    "messages could not be understood, or ingress failed 10 times to publish them: the log event is "
    "malformed_notification",
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


def _queue(facts: DeploymentFacts) -> QueueFacts:
    assert facts.queue is not None
    return facts.queue


def _where(facts: DeploymentFacts) -> str:
    return f"queue {_queue(facts).name}"


def _bucket(facts: DeploymentFacts) -> str:
    return f"bucket {facts.bucket.settings.bucket}"


def _sources(facts: DeploymentFacts) -> Sequence[str]:
    ingress = facts.config.ingress
    return () if ingress is None else ingress.regions


def reachable(facts: DeploymentFacts) -> Iterator[Diagnosis]:
    setup = _queue(facts).setup
    if isinstance(setup, Unread):
        yield UNREACHABLE.at(_where(facts), setup.reason)


def notifications(facts: DeploymentFacts) -> Iterator[Diagnosis]:
    found = known(facts.bucket.notifications)
    arn = known(_queue(facts).setup).arn
    for region in _sources(facts):
        yield from _of_region(facts, found, arn, region)


def _of_region(facts: DeploymentFacts, found: Notifications, arn: str, region: str) -> Iterator[Diagnosis]:
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
    if whole and not any(event.startswith(_REMOVED) for one in ways for event in one.events):
        yield NOT_REMOVED.at(bucket, f"below {prefix}, removals are not notified")


def _matches(one: Notification, event: str) -> bool:
    return any(fnmatchcase(event, pattern) for pattern in one.events)


def policy(facts: DeploymentFacts) -> Iterator[Diagnosis]:
    setup = known(_queue(facts).setup)
    if not isinstance(facts.probes, Unread) and any(one.arrived_at for one in facts.probes):
        return  # a message has arrived: S3 may send
    ways = known(facts.bucket.notifications)
    kinds = ["queue", *(["topic"] if ways.topics else []), *(["bridge"] if ways.to_event_bridge else [])]
    services = {_SERVICE[kind] for kind in kinds}
    bucket_arn = f"arn:{_partition(setup.arn)}:s3:::{facts.bucket.settings.bucket}"
    try:
        statements = _listed(json.loads(setup.policy or "{}").get("Statement"))
    except ValueError as error:
        yield NOT_ALLOWED.at(_where(facts), f"the queue's policy is not JSON: {error}")
        return
    sends = [one for one in statements if _SENDS & {action.lower() for action in _listed(one.get("Action"))}]
    allows = [one for one in sends if one.get("Effect") == "Allow"]
    open_to_all = [one for one in allows if _everyone(one.get("Principal")) and not one.get("Condition")]
    named = [one for one in allows if _everyone(one.get("Principal")) or services & _services(one.get("Principal"))]
    if open_to_all:
        yield OPEN.at(_where(facts), "its policy allows sqs:SendMessage to everyone, without a condition")
    elif not named:
        text = f"its policy does not allow sqs:SendMessage to {' or '.join(sorted(services))}"
        yield NOT_ALLOWED.at(_where(facts), text)
    elif not any(_is_of(one.get("Condition") or {}, bucket_arn, direct=kinds == ["queue"]) for one in named):
        yield NOT_ALLOWED.at(_where(facts), f"its policy allows sqs:SendMessage, but not from {bucket_arn}")


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


def settings(facts: DeploymentFacts) -> Iterator[Diagnosis]:
    setup = known(_queue(facts).setup)
    if setup.visibility < SHORTEST_VISIBILITY:
        yield VISIBILITY.at(_where(facts), f"VisibilityTimeout is {setup.visibility.total_seconds():g} s")
    if setup.retention < SHORTEST_RETENTION:
        yield RETENTION.at(_where(facts), f"MessageRetentionPeriod is {setup.retention}")


def dead_letters(facts: DeploymentFacts) -> Iterator[Diagnosis]:
    queue = _queue(facts)
    setup = known(queue.setup)
    if not setup.dead_letter_arn or queue.dead_letters is None:
        yield NO_DEAD_LETTERS.at(_where(facts), "it has no dead-letter queue")
    elif count := known(queue.dead_letters):
        yield DEAD_LETTERS.at(f"queue {setup.dead_letter_arn.rpartition(':')[2]}", f"about {count} messages are in it")


def probe(facts: DeploymentFacts) -> Iterator[Diagnosis]:
    for one in known(facts.probes):
        if not one.arrived_at:
            stored = f"an object was stored below {region_prefix(facts.bucket.settings.prefix, one.source)}"
            late = f"its notification did not arrive within {one.waited.total_seconds():g} s"
            yield PROBE_LOST.at(_where(facts), f"{stored}, and {late}")


def _has_queue(facts: DeploymentFacts) -> bool:
    return facts.queue is not None


QUEUE_CHECKS: Sequence[Check] = (
    Check(
        name="queue-reachable",
        checks="the queue answers to these credentials",
        where=_where,
        judge=reachable,
        kinds=(UNREACHABLE,),
        applies=_has_queue,
    ),
    Check(
        name="notifications",
        checks="the bucket notifies the queue of each source's segments",
        where=_bucket,
        judge=notifications,
        kinds=(NOT_NOTIFIED, NOTIFIED_IN_PART, NOT_ALL_CREATED, NOT_REMOVED),
        applies=_has_queue,
    ),
    Check(
        name="queue-policy",
        checks="the queue takes messages of the bucket, and of it alone",
        where=_where,
        judge=policy,
        kinds=(NOT_ALLOWED, OPEN),
        applies=_has_queue,
    ),
    Check(
        name="queue-settings",
        checks="messages are hidden and kept for long enough",
        where=_where,
        judge=settings,
        kinds=(VISIBILITY, RETENTION),
        applies=_has_queue,
    ),
    Check(
        name="dead-letters",
        checks="the dead-letter queue is there, and empty",
        where=_where,
        judge=dead_letters,
        kinds=(NO_DEAD_LETTERS, DEAD_LETTERS),
        applies=_has_queue,
    ),
    Check(
        name="notification-probe",
        checks="the notification of an object that was stored just now arrives",
        where=_where,
        judge=probe,
        kinds=(PROBE_LOST,),
        applies=_has_queue,
    ),
)
