"""How a bucket is set up, and what these credentials may do with it. Changes nothing.

Each part is a request of its own, with its own right: one that is refused says nothing about the others. What is not
configured is an empty answer, and no error.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from formats.errors import StoreUnavailable
from infra.contracts.deployment import (
    LifecycleRule,
    Notification,
    Notifications,
    PublicAccess,
    ReplicationRule,
    Transition,
)
from infra.storage.aws import error_code, status
from infra.storage.s3_errors import FAILURES, is_denial, translate, translated

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client

_ABSENT = frozenset(
    {
        "NoSuchBucketPolicy",
        "NoSuchLifecycleConfiguration",
        "NoSuchPublicAccessBlockConfiguration",
        "ReplicationConfigurationNotFoundError",
        "ServerSideEncryptionConfigurationNotFoundError",
    }
)
_UNKNOWN = ("NotImplemented", "MethodNotAllowed")  # codes of a store that has no such request
RESOLUTION_SECONDS = 1.0  # of the store's clock, as it tells it
SIGNED_FOR_SECONDS = 900.0  # S3 takes no signature that is older, or of later
_BLOCKS = ("BlockPublicAcls", "IgnorePublicAcls", "BlockPublicPolicy", "RestrictPublicBuckets")
_NO_ETAG = '"00000000000000000000000000000000"'  # of no object of ours: nothing is deleted under this condition
_ANSWERED = frozenset({404, 409, 412})  # by a store that allows the action, and does nothing


class S3BucketSetup:
    """One bucket. Thread safe, as the client is. Raises StoreUnavailable, of a refused right StoreRefused."""

    def __init__(self, client: S3Client, bucket: str) -> None:
        self._client: Any = client
        self._bucket = bucket

    def clock_ahead(self, now: Callable[[], datetime]) -> float:
        """Seconds by which this machine's clock is ahead of the store's, which tells whole seconds; 0 where the time
        that the request took explains the difference. Also the answer whether the bucket is there."""
        before = now()
        refused: ClientError | None = None
        with translated("HeadBucket", self._bucket):
            try:
                answer = self._client.head_bucket(Bucket=self._bucket)["ResponseMetadata"]
            except ClientError as error:
                # of a clock that is far off S3 says 403, without a body that would say why
                if status(error) != 403:
                    raise
                answer, refused = error.response.get("ResponseMetadata", {}), error
        text = answer.get("HTTPHeaders", {}).get("date", "")
        if text:
            theirs = parsedate_to_datetime(text).astimezone(UTC)
            first, last = (before - theirs).total_seconds(), (now() - theirs).total_seconds()
            ahead = max(first - RESOLUTION_SECONDS, 0.0) + min(last, 0.0)
            if refused is None or abs(ahead) > SIGNED_FOR_SECONDS:
                return ahead
        if refused is not None:
            raise translate(refused, operation="HeadBucket", bucket=self._bucket) from refused
        raise StoreUnavailable(f"HeadBucket s3://{self._bucket}: the store sends no Date")

    def is_versioned(self) -> bool:
        with translated("GetBucketVersioning", self._bucket):
            return bool(self._client.get_bucket_versioning(Bucket=self._bucket).get("Status") == "Enabled")

    def encryption(self) -> Sequence[str]:
        """Algorithms of the bucket's default; empty: none is set."""
        with self._read("GetBucketEncryption"):
            found = self._client.get_bucket_encryption(Bucket=self._bucket)
            rules = found["ServerSideEncryptionConfiguration"]["Rules"]
            defaults = [rule.get("ApplyServerSideEncryptionByDefault", {}) for rule in rules]
            return [one["SSEAlgorithm"] for one in defaults if "SSEAlgorithm" in one]
        return []

    def public_access(self) -> PublicAccess:
        with self._read("GetPublicAccessBlock"):
            found = self._client.get_public_access_block(Bucket=self._bucket)["PublicAccessBlockConfiguration"]
            return PublicAccess([name for name in _BLOCKS if not found.get(name)])
        return PublicAccess(_BLOCKS)

    def policy(self) -> str:
        """JSON; empty: there is none."""
        with self._read("GetBucketPolicy"):
            return str(self._client.get_bucket_policy(Bucket=self._bucket)["Policy"])
        return ""

    def lifecycle(self) -> Sequence[LifecycleRule]:
        """Rules that are enabled."""
        with self._read("GetBucketLifecycleConfiguration"):
            rules = self._client.get_bucket_lifecycle_configuration(Bucket=self._bucket).get("Rules", ())
            return [_lifecycle_rule(rule) for rule in rules if rule.get("Status") == "Enabled"]
        return []

    def notifications(self) -> Notifications:
        with translated("GetBucketNotificationConfiguration", self._bucket):
            found = self._client.get_bucket_notification_configuration(Bucket=self._bucket)
        return Notifications(
            queues=[_notification(one, one["QueueArn"]) for one in found.get("QueueConfigurations", ())],
            topics=[_notification(one, one["TopicArn"]) for one in found.get("TopicConfigurations", ())],
            to_event_bridge="EventBridgeConfiguration" in found,
        )

    def replication(self) -> Sequence[ReplicationRule]:
        """Rules that are enabled. A store that does not know the request replicates nothing."""
        with self._read("GetBucketReplication", *_UNKNOWN):
            found = self._client.get_bucket_replication(Bucket=self._bucket)["ReplicationConfiguration"]
            return [_replication_rule(rule) for rule in found["Rules"] if rule.get("Status") == "Enabled"]
        return []

    def refusal_of_list(self, prefix: str) -> str:
        """Why these credentials may not list below `prefix`; empty: they may."""
        return self._refusal(
            "ListObjectsV2",
            "",
            lambda: self._client.list_objects_v2(Bucket=self._bucket, Prefix=prefix, MaxKeys=1),
        )

    def refusal_of_get(self, key: str) -> str:
        """Why they may not read `key`, which need not exist; empty: they may."""
        return self._refusal("HeadObject", key, lambda: self._client.head_object(Bucket=self._bucket, Key=key))

    def refusal_of_delete(self, key: str) -> str:
        """Why they may not delete `key`; empty: they may. The condition of the request holds for no object of ours, so
        nothing is deleted; a store that does not know the condition deletes the object."""
        return self._refusal(
            "DeleteObject",
            key,
            lambda: self._client.delete_object(Bucket=self._bucket, Key=key, IfMatch=_NO_ETAG),
        )

    def _refusal(self, operation: str, key: str, call: Any) -> str:
        try:
            call()
        except FAILURES as error:
            if isinstance(error, ClientError) and error_code(error) != "NoSuchBucket" and status(error) in _ANSWERED:
                return ""
            problem = translate(error, operation=operation, bucket=self._bucket, key=key)
            if isinstance(error, ClientError) and is_denial(error):
                return str(problem)
            raise problem from error
        return ""

    def _read(self, operation: str, *absent: str) -> _Reading:
        return _Reading(operation, self._bucket, _ABSENT.union(absent))


class _Reading:
    """Translates errors of the block; swallows that there is no such configuration."""

    def __init__(self, operation: str, bucket: str, absent: Collection[str]) -> None:
        self._operation, self._bucket, self._absent = operation, bucket, absent

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if isinstance(error, ClientError) and error_code(error) in self._absent:
            return True
        if isinstance(error, FAILURES):
            raise translate(error, operation=self._operation, bucket=self._bucket) from error
        return False


def _lifecycle_rule(rule: Mapping[str, Any]) -> LifecycleRule:
    given = rule.get("Filter", {})
    several = given.get("And", {})
    narrow = ("Tag", "Tags", "ObjectSizeGreaterThan", "ObjectSizeLessThan")
    noncurrent = rule.get("NoncurrentVersionExpiration", {}).get("NoncurrentDays")
    aborts = rule.get("AbortIncompleteMultipartUpload", {}).get("DaysAfterInitiation")
    return LifecycleRule(
        name=rule.get("ID", ""),
        prefix=given.get("Prefix") or several.get("Prefix") or rule.get("Prefix") or "",
        is_narrower=any(given.get(name) or several.get(name) for name in narrow),
        expires=" ".join(_expires(rule.get("Expiration", {}))),
        aborts_uploads_after_days=None if aborts is None else int(aborts),
        noncurrent_days=None if noncurrent is None else int(noncurrent),
        transitions=[
            Transition(one["StorageClass"], None if one.get("Days") is None else int(one["Days"]))
            for one in rule.get("Transitions", ())
        ],
    )


def _expires(expiration: Mapping[str, Any]) -> Iterator[str]:
    if expiration.get("Days"):
        yield f"{expiration['Days']} days after they were stored"
    if expiration.get("Date"):
        yield f"on {str(expiration['Date'])[:10]}"


def _notification(one: Mapping[str, Any], to: str) -> Notification:
    rules = {
        rule["Name"].lower(): rule["Value"] for rule in one.get("Filter", {}).get("Key", {}).get("FilterRules", ())
    }
    return Notification(
        to=to, events=tuple(one.get("Events", ())), prefix=rules.get("prefix", ""), suffix=rules.get("suffix", "")
    )


def _replication_rule(rule: Mapping[str, Any]) -> ReplicationRule:
    given = rule.get("Filter", {})
    several = given.get("And", {})
    selected = rule.get("SourceSelectionCriteria", {})
    by_default = "Disabled" if "Filter" in rule else "Enabled"
    return ReplicationRule(
        name=rule.get("ID", ""),
        bucket=rule["Destination"]["Bucket"].rpartition(":")[2],
        prefix=given.get("Prefix") or several.get("Prefix") or rule.get("Prefix") or "",
        # a rule without a filter is one of S3's first version, which sends delete markers
        copies_delete_markers=rule.get("DeleteMarkerReplication", {}).get("Status", by_default) == "Enabled",
        is_narrower=bool(given.get("Tag") or several.get("Tags")),
        takes_kms=selected.get("SseKmsEncryptedObjects", {}).get("Status") == "Enabled",
    )
