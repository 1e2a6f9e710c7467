"""Checks of a bucket: its settings, the rights in it, and what S3 does with its objects by itself. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from formats.segment import FROZEN_CLASSES, region_prefix
from infra.contracts.deployment import LifecycleRule, ReplicationRule
from infra.contracts.encryption import is_of_kms
from replicator.doctor.facts import BucketFacts, DeploymentFacts, Unread, known
from replicator.doctor.findings import Check, Diagnosis, Kind, Severity
from replicator.doctor.policy_checks import POLICY_KINDS, policy

ERROR, WARNING = Severity.ERROR, Severity.WARNING

UNREACHABLE = Kind(
    "bucket-unreachable",
    ERROR,
    "nothing is archived or read while the bucket does not answer",
    "repair what the reason names: credentials, bucket, endpoint or network",
)
NOT_CONDITIONAL = Kind(
    "bucket-overwrites",
    ERROR,
    "segments, claims and leases would be overwritten without an error",
    "use a store that supports conditional writes",
)
RIGHT_MISSING = Kind(
    "bucket-right-missing",
    ERROR,
    "the command of this role stops with a refusal at its first use",
    "give the role the policy that `replicator rights ROLE --iam` prints",
)
RIGHT_NEEDLESS = Kind(
    "bucket-right-needless",
    WARNING,
    "credentials that leak, or a mistake, can remove the archive; most commands, such as egress and ingress, delete "
    "nothing",
    "give each command a role of its own, with the policy that `replicator rights ROLE --iam` prints",
)
EXPIRES = Kind(
    "bucket-expires-segments",
    ERROR,
    "an object that a lifecycle rule removed leaves no recorded gap: what is missing in an archive counts as lost",
    "remove the expiration of current objects from the rule, or change its prefix; `replicator gc` removes what "
    "[retention] does not keep",
)
FREEZES_CONTROL = Kind(
    "bucket-freezes-control-objects",
    ERROR,
    "control objects are read at each start and each listing, and what is in this class cannot be read for hours",
    "let the rule take large objects only (ObjectSizeGreaterThan), as infra/deploy/aws/source-region.yaml does",
)
FREEZES = Kind(
    "bucket-freezes-segments",
    WARNING,
    "compact, verify and an ingress that is far behind stop at a segment in this class; `restore --thaw` asks for it, "
    "which takes hours",
    "use a class that is read at once, such as GLACIER_IR, or none",
)
KEEPS_UPLOADS = Kind(
    "bucket-keeps-uploads",
    WARNING,
    "parts of uploads that a crash left behind are in no listing, and cost money for ever",
    "add a lifecycle rule with AbortIncompleteMultipartUpload, of 7 days for instance, or run `replicator gc`",
)
KEEPS_VERSIONS = Kind(
    "bucket-keeps-versions",
    WARNING,
    "each segment that compaction replaced stays as a noncurrent version, and costs money for ever",
    "add a lifecycle rule with NoncurrentVersionExpiration, of 30 days for instance",
)
NOT_VERSIONED = Kind(
    "bucket-not-versioned",
    WARNING,
    "an object that was deleted by mistake cannot be brought back, and S3 replication needs versions",
    "switch versioning on, with a lifecycle rule for noncurrent versions",
)
NOT_ENCRYPTED = Kind(
    "bucket-not-encrypted",
    WARNING,
    "records would be stored in clear",
    "set a default encryption of the bucket, or s3.sse",
)
PUBLIC = Kind(
    "bucket-may-be-public",
    WARNING,
    "a policy or an ACL, by mistake, could show the archive to everyone",
    "switch all four settings of the bucket's block of public access on",
)
REPLICATES_OTHERS = Kind(
    "replication-of-other-regions",
    ERROR,
    "what arrives here from another region, or is compacted here, would be sent back or on: two buckets that do so "
    "fill each other for ever",
    "filter each replication rule to the prefix of this region's archive",
)
REPLICATES_PART = Kind(
    "replication-of-a-part",
    WARNING,
    "segments outside of the filter, or control objects, do not arrive: the target sees gaps",
    "filter the replication rule to the prefix of this region's archive, and no further",
)
REPLICATES_DELETIONS = Kind(
    "replication-of-deletions",
    ERROR,
    "what compact and gc delete here would be deleted there before it is delivered; each bucket is compacted and "
    "thinned by itself",
    "give the rule a Filter, and set its DeleteMarkerReplication to Disabled",
)
REPLICATES_TWICE = Kind(
    "replication-beside-sync",
    WARNING,
    "S3 replication and `replicator sync` both copy to this bucket: each object is sent, and paid for, twice",
    "remove the replication rule, or [sync]",
)
REPLICATES_NOT_ENCRYPTED = Kind(
    "replication-leaves-out-encrypted",
    ERROR,
    "S3 replicates no object that a KMS key encrypts unless the rule says so, and reports no failure: the target gets "
    "nothing",
    "set SourceSelectionCriteria.SseKmsEncryptedObjects and EncryptionConfiguration in the rule (ReplicaKmsKeyArn of "
    "infra/deploy/aws/source-region.yaml), then replicate what is stored with S3 Batch Replication",
)
CLOCK_FAR_OFF = Kind(
    "clock-far-off",
    ERROR,
    "S3 and SQS refuse requests whose signature is more than 15 minutes off",
    "synchronise this machine's clock (NTP)",
)
CLOCK_OFF = Kind(
    "clock-off",
    WARNING,
    "durations between machines are wrong: leases, lag in time, the stages of a segment",
    "synchronise this machine's clock (NTP)",
)
CLOCK_WARNING, CLOCK_ERROR = 5.0, 900.0  # seconds


def _name(bucket: BucketFacts) -> str:
    return f"bucket {bucket.settings.bucket}"


def _archive(bucket: BucketFacts) -> str:
    return f"{bucket.settings.prefix}/" if bucket.settings.prefix else ""


def _overlap(one: str, other: str) -> bool:
    return one.startswith(other) or other.startswith(one)


def is_reachable(bucket: BucketFacts) -> Iterator[Diagnosis]:
    if isinstance(bucket.clock_ahead, Unread):
        yield UNREACHABLE.at(_name(bucket), bucket.clock_ahead.reason)


def clock(bucket: BucketFacts) -> Iterator[Diagnosis]:
    ahead = known(bucket.clock_ahead)
    off = f"this machine's clock is {abs(ahead):.0f} s {'ahead of' if ahead > 0 else 'behind'} the store's"
    if abs(ahead) > CLOCK_ERROR:
        yield CLOCK_FAR_OFF.at("this machine", off)
    elif abs(ahead) > CLOCK_WARNING:
        yield CLOCK_OFF.at("this machine", off)


def conditional_writes(bucket: BucketFacts) -> Iterator[Diagnosis]:
    if bucket.conditional_writes is not None and (problem := known(bucket.conditional_writes)):
        yield NOT_CONDITIONAL.at(_name(bucket), problem)


def rights(bucket: BucketFacts) -> Iterator[Diagnosis]:
    unread = [one.refusal for one in bucket.rights if isinstance(one.refusal, Unread)]
    for one in bucket.rights:
        if isinstance(one.refusal, Unread):
            continue
        if one.is_needed and one.refusal:
            yield RIGHT_MISSING.at(_name(bucket), f"{one.action} on {one.resource} is refused: {one.refusal}")
        if not one.is_needed and not one.refusal:
            yield RIGHT_NEEDLESS.at(
                _name(bucket), f"these credentials may {one.action} on {one.resource}, which no role here needs"
            )
    for each in unread:
        known(each)


def lifecycle(bucket: BucketFacts) -> Iterator[Diagnosis]:
    rules, archive = known(bucket.lifecycle), _archive(bucket)
    ours = [rule for rule in rules if _overlap(rule.prefix, archive)]
    for rule in ours:
        yield from _of_rule(bucket, rule)
    for region in bucket.regions:
        prefix = region_prefix(bucket.settings.prefix, region)
        whole = [rule for rule in ours if prefix.startswith(rule.prefix) and not rule.is_narrower]
        if not any(rule.aborts_uploads_after_days is not None for rule in whole):
            yield KEEPS_UPLOADS.at(_name(bucket), f"no lifecycle rule ends incomplete uploads below {prefix}")
        if bucket.is_versioned is True and not any(rule.noncurrent_days is not None for rule in whole):
            yield KEEPS_VERSIONS.at(_name(bucket), f"no lifecycle rule removes noncurrent versions below {prefix}")


def _of_rule(bucket: BucketFacts, rule: LifecycleRule) -> Iterator[Diagnosis]:
    named = f"lifecycle rule {rule.name!r}, on {rule.prefix or 'the whole bucket'}"
    if rule.expires:
        yield EXPIRES.at(_name(bucket), f"{named}, removes current objects {rule.expires}")
    for move in rule.transitions:
        if move.storage_class in FROZEN_CLASSES:
            kind = FREEZES if rule.is_narrower else FREEZES_CONTROL
            yield kind.at(_name(bucket), f"{named}, moves objects to {move.storage_class}")


def versioning(bucket: BucketFacts) -> Iterator[Diagnosis]:
    if not known(bucket.is_versioned):
        yield NOT_VERSIONED.at(_name(bucket), "versioning is off")


def encryption(bucket: BucketFacts) -> Iterator[Diagnosis]:
    if not known(bucket.encryption) and bucket.settings.sse is None:
        yield NOT_ENCRYPTED.at(_name(bucket), "there is no default encryption, and s3.sse is not set")


def public_access(bucket: BucketFacts) -> Iterator[Diagnosis]:
    if allowed := known(bucket.public_access).allowed:
        yield PUBLIC.at(_name(bucket), f"not blocked: {', '.join(allowed)}")


def _replication(facts: DeploymentFacts) -> Iterator[Diagnosis]:
    bucket = facts.bucket
    rules, archive = known(bucket.replication), _archive(bucket)
    own = region_prefix(bucket.settings.prefix, facts.config.region)
    synced = None if facts.config.sync is None else facts.config.sync.destination.bucket
    whole = {rule.bucket for rule in rules if rule.prefix == own}
    for rule in rules:
        if _overlap(rule.prefix, archive):
            yield from _of_replication(bucket, rule, own, is_part=rule.bucket not in whole)
            if rule.bucket == synced:
                yield REPLICATES_TWICE.at(
                    _name(bucket), f"replication rule {rule.name!r} and [sync] both copy to {rule.bucket}"
                )


def _of_replication(bucket: BucketFacts, rule: ReplicationRule, own: str, *, is_part: bool) -> Iterator[Diagnosis]:
    named = f"replication rule {rule.name!r} to {rule.bucket}"
    if not rule.prefix.startswith(own):
        yield REPLICATES_OTHERS.at(
            _name(bucket),
            f"{named} takes {rule.prefix or 'the whole bucket'}, and not {own} alone",
            f"set the rule's filter to the prefix {own}",
        )
    elif rule.prefix != own and is_part:
        yield REPLICATES_PART.at(_name(bucket), f"{named} takes {rule.prefix}, and not all of {own}")
    if not rule.takes_kms and (by := _kms_of(bucket)):
        yield REPLICATES_NOT_ENCRYPTED.at(_name(bucket), f"{named} leaves out what a KMS key encrypts, and {by}")
    if rule.copies_delete_markers:
        yield REPLICATES_DELETIONS.at(_name(bucket), f"{named} sends deletions, too")


def _kms_of(bucket: BucketFacts) -> str:
    """What says that a KMS key encrypts new objects; empty: nothing does."""
    if bucket.settings.sse is not None:
        return f"s3.sse is {bucket.settings.sse}" if is_of_kms(bucket.settings.sse) else ""
    if isinstance(bucket.encryption, Unread):
        return ""  # the check of encryption reports that
    return next((f"the bucket's default is {one}" for one in bucket.encryption if is_of_kms(one)), "")


@dataclass(frozen=True, slots=True)
class _Part:
    """A check of any bucket."""

    name: str
    checks: str
    judge: Callable[[BucketFacts], Iterator[Diagnosis]]
    kinds: Sequence[Kind]


_PARTS: Sequence[_Part] = (
    _Part("reachable", "the bucket answers to these credentials", is_reachable, (UNREACHABLE,)),
    _Part(
        "rights",
        "the roles have the rights that they need, and no right to delete that none needs",
        rights,
        (RIGHT_MISSING, RIGHT_NEEDLESS),
    ),
    _Part("policy", "its policy denies nothing that the roles need", policy, POLICY_KINDS),
    _Part("conditional-writes", "an object that exists is not overwritten", conditional_writes, (NOT_CONDITIONAL,)),
    _Part(
        "lifecycle",
        "lifecycle rules keep current objects, and remove what is left behind",
        lifecycle,
        (EXPIRES, FREEZES_CONTROL, FREEZES, KEEPS_UPLOADS, KEEPS_VERSIONS),
    ),
    _Part("versioning", "what is deleted can be brought back", versioning, (NOT_VERSIONED,)),
    _Part("encryption", "objects are encrypted", encryption, (NOT_ENCRYPTED,)),
    _Part("public-access", "public access is blocked", public_access, (PUBLIC,)),
)


def _own(facts: DeploymentFacts) -> BucketFacts:
    return facts.bucket


def _there(facts: DeploymentFacts) -> BucketFacts:
    assert facts.destination is not None
    return facts.destination


def _check(head: str, of: Callable[[DeploymentFacts], BucketFacts], part: _Part) -> Check:
    return Check(
        name=f"{head}-{part.name}",
        checks=part.checks,
        where=lambda facts: _name(of(facts)),
        judge=lambda facts: part.judge(of(facts)),
        kinds=part.kinds,
        applies=lambda facts: of is _own or facts.destination is not None,
    )


BUCKET_CHECKS: Sequence[Check] = (
    *(_check("bucket", _own, part) for part in _PARTS),
    Check(
        name="clock",
        checks="this machine's clock agrees with the store's",
        where=lambda _: "this machine",
        judge=lambda facts: clock(facts.bucket),
        kinds=(CLOCK_FAR_OFF, CLOCK_OFF),
    ),
    Check(
        name="replication",
        checks="S3 replication sends this region's archive alone and whole, without deletions",
        where=lambda facts: _name(facts.bucket),
        judge=_replication,
        kinds=(
            *(REPLICATES_OTHERS, REPLICATES_PART, REPLICATES_NOT_ENCRYPTED),
            *(REPLICATES_DELETIONS, REPLICATES_TWICE),
        ),
    ),
    *(_check("destination", _there, part) for part in _PARTS),
)
