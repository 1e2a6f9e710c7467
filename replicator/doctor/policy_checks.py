"""The check of a bucket's policy: no statement denies what the roles need. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from replicator.doctor.bucket_policy import Caller, Cause, Denial, denials
from replicator.doctor.facts import BucketFacts, Unread, known
from replicator.doctor.findings import Diagnosis, Kind, Severity

DENIES = Kind(
    "bucket-policy-denies",
    Severity.ERROR,
    "a statement that denies counts more than every right of a role: the command stops with a refusal",
    "exempt the role from the statement (aws:PrincipalArn), or remove it",
)
NEEDS_TLS = Kind(
    "bucket-policy-needs-tls",
    Severity.ERROR,
    "the policy denies requests without TLS (aws:SecureTransport), and these are sent without",
    "give s3.endpoint_url with https://, or leave it out",
)
NEEDS_ENCRYPTION = Kind(
    "bucket-policy-needs-encryption",
    Severity.ERROR,
    "the policy denies puts that do not ask for the encryption that it wants; the bucket's default does not count",
    "set s3.sse, and s3.kms_key_id, to what the statement asks for",
)
POLICY_KINDS = (DENIES, NEEDS_TLS, NEEDS_ENCRYPTION)
_KINDS: Mapping[Cause, Kind] = {
    Cause.ANY: DENIES,
    Cause.NO_TLS: NEEDS_TLS,
    Cause.NOT_ENCRYPTED: NEEDS_ENCRYPTION,
}


def policy(bucket: BucketFacts) -> Iterator[Diagnosis]:
    """First what is denied to everyone: for that it need not be known who asks."""
    text, settings = known(bucket.policy), bucket.settings
    caller = Caller(
        arn="" if isinstance(bucket.caller, Unread) else bucket.caller,
        is_tls=not (settings.endpoint_url or "").startswith("http://"),
        sse=settings.sse,
        key_id=settings.kms_key_id,
    )
    try:
        found = list(denials(text, bucket.needed, caller))
    except ValueError as error:
        yield DENIES.at(_name(bucket), f"its policy is not JSON: {error}")
        return
    for one in found:
        yield _KINDS[one.cause].at(_name(bucket), _text(one))
    if text:
        known(bucket.caller)


def _text(one: Denial) -> str:
    request = f"{one.action} on {one.resource}"
    if one.cause is Cause.NO_TLS:
        request += " without TLS"
    if one.cause is Cause.NOT_ENCRYPTED:
        request += " as the settings ask for encryption"
    return f"statement {one.statement} of its policy denies {request}"


def _name(bucket: BucketFacts) -> str:
    return f"bucket {bucket.settings.bucket}"
