"""The `[s3]` and `[sqs]` sections: the bucket of an archive, and the queue of its notifications."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal

from infra.settings.field import Problem, enforce, http_url, matching, not_blank, setting
from infra.settings.units import GIB, MIB

MAX_PARTS = 10_000  # S3's limit for one multipart upload
SSE = ("AES256", "aws:kms", "aws:kms:dsse")
_DAY = timedelta(days=1)
ROLE_SESSION_NAME = "kafka-segment-replicator"

_prefix = matching(r"([^/\s@]+(/[^/\s@]+)*)?", 'words between single slashes, none at either end, such as "data"')
_role_arn = matching(
    r"arn:aws[a-z-]*:iam::\d{12}:role/[\w+=,.@/-]+", 'the ARN of a role, such as "arn:aws:iam::123456789012:role/NAME"'
)
# STS's own limits
_external_id = matching(r"[\w+=,.@:/-]{2,1224}", "2 to 1224 of A-Z a-z 0-9 _ + = , . @ : / -")
_session_name = matching(r"[\w+=,.@-]{2,64}", "2 to 64 of A-Z a-z 0-9 _ + = , . @ -")


@dataclass(frozen=True, slots=True, kw_only=True)
class AwsSettings:
    """Credentials of a client for AWS, or for another server with the same API."""

    access_key_id: str | None = field(
        default=None, metadata=setting("key of an AWS account; default: the AWS credential chain", check=not_blank)
    )
    secret_access_key: str | None = field(
        default=None,
        repr=False,
        metadata=setting("required with access_key_id; only as ${ENV}", secret=True, check=not_blank),
    )
    session_token: str | None = field(
        default=None,
        repr=False,
        metadata=setting("for temporary keys; only as ${ENV}", secret=True, check=not_blank),
    )
    profile: str | None = field(
        default=None,
        metadata=setting(
            "profile of the AWS configuration files whose credentials are used; default: the AWS credential chain",
            check=not_blank,
        ),
    )
    role_arn: str | None = field(
        default=None,
        metadata=setting(
            "role that is assumed with the keys, the profile or the AWS credential chain, such as one of another "
            "account; its temporary keys are refreshed",
            check=_role_arn,
        ),
    )
    external_id: str | None = field(
        default=None,
        metadata=setting("external id that the role's trust policy asks for", check=_external_id),
    )
    role_session_name: str | None = field(
        default=None,
        metadata=setting(
            f'name of the sessions of role_arn in CloudTrail; default: "{ROLE_SESSION_NAME}"', check=_session_name
        ),
    )
    role_duration: timedelta = field(
        default=timedelta(hours=1),
        metadata=setting(
            "how long temporary keys of role_arn are valid; not more than the role's own maximum, and not more than "
            "1h where the credentials that assume it are a role's, too",
            minimum=timedelta(minutes=30),  # botocore renews keys 15 minutes before their end
            maximum=timedelta(hours=12),
        ),
    )

    def credential_problems(self) -> Iterator[Problem]:
        if self.profile is not None and self.access_key_id is not None:
            yield "profile", "stands beside access_key_id; give one of them"
        if self.external_id is not None and self.role_arn is None:
            yield "external_id", "needs role_arn, whose trust policy asks for it"
        if self.role_session_name is not None and self.role_arn is None:
            yield "role_session_name", "needs role_arn"
        yield from self._incomplete_keys()

    def _incomplete_keys(self) -> Iterator[Problem]:
        if self.access_key_id is not None and self.secret_access_key is None:
            yield "access_key_id", "needs secret_access_key; give both, or neither to use the AWS credential chain"
        if self.secret_access_key is not None and self.access_key_id is None:
            yield "secret_access_key", "needs access_key_id; give both, or neither to use the AWS credential chain"
        if self.session_token is not None and self.access_key_id is None:
            yield "session_token", "needs access_key_id and secret_access_key"


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Settings(AwsSettings):
    """A bucket and the prefix of an archive in it. Without keys, the AWS credential chain is used."""

    bucket: str = field(metadata=setting("bucket of the archive", check=not_blank))
    prefix: str = field(
        default="data",
        metadata=setting("key prefix of the archive; may be empty; one archive per prefix", check=_prefix),
    )
    endpoint_url: str | None = field(
        default=None, metadata=setting("another S3 server than AWS's; default: AWS", check=http_url)
    )
    region_name: str | None = field(
        default=None, metadata=setting("AWS region of the bucket; default: the AWS environment's", check=not_blank)
    )
    storage_class: str | None = field(
        default=None,
        metadata=setting("storage class of new segments, such as STANDARD_IA; default: the bucket's", check=not_blank),
    )
    sse: str | None = field(
        default=None,
        metadata=setting(
            "server-side encryption of new segments; default: the bucket's",
            check=matching("|".join(SSE), " or ".join(f'"{name}"' for name in SSE)),
        ),
    )
    kms_key_id: str | None = field(
        default=None, metadata=setting("KMS key for sse = aws:kms; default: AWS's own key", check=not_blank)
    )
    bucket_key: bool | None = field(
        default=None,
        metadata=setting(
            "S3 Bucket Keys for sse = aws:kms: fewer requests to KMS, which then sees the bucket and not the object; "
            "default: the bucket's"
        ),
    )
    object_lock_mode: Literal["GOVERNANCE", "COMPLIANCE"] | None = field(
        default=None,
        metadata=setting(
            "Object Lock of new objects, but for those about the bucket itself: no version can be deleted before "
            "object_lock_retention has passed, in COMPLIANCE not even by the account's root; the bucket must have "
            "Object Lock enabled"
        ),
    )
    object_lock_retention: timedelta | None = field(
        default=None,
        metadata=setting("how long object_lock_mode protects a new object, from when it is put", minimum=_DAY),
    )
    expected_bucket_owner: str | None = field(
        default=None,
        metadata=setting(
            "AWS account that owns the bucket: every request fails when another one does",
            check=matching(r"\d{12}", "an account of 12 digits"),
        ),
    )
    part_size: int = field(
        default=16 * MIB,
        metadata=setting(
            "segments above this size are uploaded in parts of this size; a retry repeats one part",
            size=True,
            minimum=5 * MIB,  # S3's limits
            maximum=5 * GIB,
        ),
    )

    conditional_writes: Literal["probe", "assume"] = field(
        default="probe",
        metadata=setting(
            "probe: each writer tries to overwrite an object at its start, which the store must reject; assume: no "
            "test, the store is known to reject it"
        ),
    )

    def __post_init__(self) -> None:
        enforce(self, [*self.credential_problems(), *self._contradictions()])

    def _contradictions(self) -> Iterator[Problem]:
        if self.kms_key_id is not None and not (self.sse or "").startswith("aws:kms"):
            yield "kms_key_id", 'needs sse = "aws:kms"; as written the key would not be used'
        if self.bucket_key is not None and self.sse != "aws:kms":
            yield "bucket_key", 'needs sse = "aws:kms"; as written it would not be used'
        if (self.object_lock_mode is None) != (self.object_lock_retention is None):
            yield "object_lock_mode", "and object_lock_retention need each other; give both, or neither"


@dataclass(frozen=True, slots=True, kw_only=True)
class SqsSettings(AwsSettings):
    """The queue that receives a bucket's notifications."""

    queue: str = field(
        metadata=setting("name or URL of the queue that the bucket's notifications go to", check=not_blank)
    )
    endpoint_url: str | None = field(
        default=None, metadata=setting("another SQS server than AWS's; default: AWS", check=http_url)
    )
    region_name: str | None = field(
        default=None, metadata=setting("AWS region of the queue; default: the AWS environment's", check=not_blank)
    )
    wait: timedelta = field(
        default=timedelta(seconds=20),
        metadata=setting(
            "how long one request waits for a message; SQS charges per request, and its maximum is 20s",
            minimum=timedelta(0),
            maximum=timedelta(seconds=20),
        ),
    )

    def __post_init__(self) -> None:
        enforce(self, self.credential_problems())
