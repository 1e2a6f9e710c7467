"""Data keys wrapped by AWS KMS.

    GenerateDataKey   for a new object; one request for several control objects
    Decrypt           for an object that is read; one request for all with the same data key

A key is named by its ARN, and only keys of the configuration are used, whatever an object says: else a principal that
may write into the bucket could have objects decrypted with a key of its own. A multi-Region key (`mrk-…`) is the same
key in each of its regions: KMS of the configured ARN's region is asked, although the object may have been written in
another one.
"""

from __future__ import annotations

import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from formats.errors import KeyRefused, KeyUnavailable
from infra.contracts.encryption import DATA_KEY_BYTES, DataKey, KeyProvider
from infra.runtime.lifecycle import Stop
from infra.runtime.retry import Retries, RetryPolicy
from infra.storage.aws import (
    FAILURES,
    AwsCredentials,
    advice_on_credentials,
    client_config,
    describe_error,
    error_code,
)
from infra.storage.clients import create_client

if TYPE_CHECKING:
    import boto3

KEY_ARN = re.compile(r"arn:(?P<partition>aws[a-z-]*):kms:(?P<region>[a-z0-9-]+):(?P<account>\d{12}):key/(?P<id>[\w-]+)")
CONNECTIONS = 16
CACHED = 1_000  # data keys
SHARED_BY = 1_000  # objects
READ_ATTEMPTS = 3
_MULTI_REGION = "mrk-"
_THROTTLED = "ThrottlingException"
_REMEDIES: Mapping[str, str] = {
    "AccessDeniedException": "allow {action} on it to these credentials, in the key's policy or their own",
    "NotFoundException": "there is no such key: correct the ARN",
    "DisabledException": "enable the key",
    "KMSInvalidStateException": "enable the key, or cancel its deletion",
    "InvalidCiphertextException": "another key wrapped the object's data key, or for an archive of another region",
    "IncorrectKeyException": "another key wrapped the object's data key: add that one to encryption.kms_read_key_ids",
    "InvalidKeyUsageException": "it must be a symmetric key for encryption",
    "InvalidArnException": "correct the ARN",
    "UnrecognizedClientException": "repair the credentials of [encryption]",
    "InvalidSignatureException": "repair the credentials of [encryption], or this machine's clock",
    "ExpiredTokenException": "repair the credentials of [encryption]",
    "IncompleteSignature": "repair the credentials of [encryption]",
    "ValidationException": "correct the ARN",
}


def context_of(region: str) -> dict[str, str]:
    """The encryption context of data keys: policies of the key may ask for it, and CloudTrail shows it."""
    return {"segment-archive-region": region}


def make_kms_client(
    region_name: str,
    *,
    endpoint_url: str | None,
    credentials: AwsCredentials | None,
    session: boto3.Session | None,
) -> Any:
    """A client for `KmsKeys`; the caller closes it. Raises ConfigError."""
    return create_client(
        "kms",
        endpoint_url=endpoint_url,
        region_name=region_name,
        credentials=credentials,
        session=session,
        config=client_config(max_pool_connections=CONNECTIONS),
    )


class KmsKeys:
    """A `KeyProvider`. `client`: of KMS in a region; made once for each."""

    def __init__(self, current: str | None, others: Collection[str], client: Callable[[str], Any]) -> None:
        """ARNs. `current`: for new objects; None: this process only reads what such keys encrypted."""
        self._current, self._allowed = current, ([current] if current else []) + list(others)
        self._make_client = client
        self._clients: dict[str, Any] = {}
        self._mutex = threading.Lock()

    def create(self, region: str, *, is_shared: bool = False) -> DataKey:  # noqa: ARG002
        if self._current is None:
            raise KeyRefused("no KMS key for new objects: set encryption.kms_key_id")
        with translated_key_error("GenerateDataKey", self._current):
            answer = self._client(self._current).generate_data_key(
                KeyId=self._current, NumberOfBytes=DATA_KEY_BYTES, EncryptionContext=context_of(region)
            )
        return DataKey(key_id=answer["KeyId"], wrapped=answer["CiphertextBlob"], secret=answer["Plaintext"])

    def unwrap(self, key_id: str, wrapped: bytes, region: str) -> bytes:
        key = next((one for one in self._allowed if same_key(one, key_id)), None)
        if key is None:
            raise KeyRefused(
                f"the KMS key {key_id} is not one of [encryption]: if the object is ours, add the key to "
                "encryption.kms_read_key_ids"
            )
        with translated_key_error("Decrypt", key):
            answer = self._client(key).decrypt(KeyId=key, CiphertextBlob=wrapped, EncryptionContext=context_of(region))
        return bytes(answer["Plaintext"])

    def _client(self, arn: str) -> Any:
        region = region_of(arn)
        with self._mutex:
            if region not in self._clients:
                self._clients[region] = self._make_client(region)
            return self._clients[region]


def region_of(arn: str) -> str:
    match = KEY_ARN.fullmatch(arn)
    return match["region"] if match else ""


def same_key(configured: str, found: str) -> bool:
    """Whether two ARNs name one key, or replicas of one multi-Region key."""
    if configured == found:
        return True
    ours, theirs = KEY_ARN.fullmatch(configured), KEY_ARN.fullmatch(found)
    if ours is None or theirs is None or not ours["id"].startswith(_MULTI_REGION):
        return False
    return all(ours[part] == theirs[part] for part in ("partition", "account", "id"))


@contextmanager
def translated_key_error(operation: str, key: str) -> Iterator[None]:
    try:
        yield
    except FAILURES as error:
        what = f"{operation} with KMS key {key}: {describe_error(error)}"
        if advice := advice_on_credentials(error):
            raise KeyRefused(f"{what}; {advice}") from error
        if isinstance(error, ClientError) and (remedy := _REMEDIES.get(error_code(error))):
            raise KeyRefused(f"{what}; {remedy.format(action=f'kms:{operation}')}") from error
        raise KeyUnavailable(f"{what}{_advice(error)}") from error


def _advice(error: Exception) -> str:
    """About a failure that may pass."""
    if not isinstance(error, ClientError):
        return "; check the network to KMS"
    if error_code(error) == _THROTTLED:
        return "; if this lasts, raise the quota of KMS requests of its account and region, which S3's aws:kms shares"
    return ""


class RetryingKeys:
    """A `KeyProvider` that retries, as `RetryingObjectStore` does. But with a key to read with that is refused, or for
    which KMS does not answer, a call soon fails, also in a service: it concerns the partitions with this key alone, and
    few threads read for all."""

    def __init__(
        self,
        keys: KeyProvider,
        *,
        stop: Stop,
        policy: RetryPolicy | None = None,
        on_problem: Callable[[str, str | None], None] = lambda _operation, _reason: None,
    ) -> None:
        self._keys, policy = keys, policy or RetryPolicy()
        self._creating = Retries(stop=stop, policy=policy, on_problem=on_problem)
        attempts = min(policy.attempts or READ_ATTEMPTS, READ_ATTEMPTS)
        reading = replace(policy, raises_refusals=True, attempts=attempts)
        self._reading = Retries(stop=stop, policy=reading, on_problem=on_problem)

    def create(self, region: str, *, is_shared: bool = False) -> DataKey:
        return self._creating.call("create_data_key", lambda: self._keys.create(region, is_shared=is_shared))

    def unwrap(self, key_id: str, wrapped: bytes, region: str) -> bytes:
        return self._reading.call("unwrap_data_key", lambda: self._keys.unwrap(key_id, wrapped, region))


class CachedKeys:
    """A `KeyProvider` that keeps data keys for a bounded time, so that control objects, and the footer and the records
    of a segment, cost one request together. Thread safe; a race costs one request more."""

    def __init__(self, keys: KeyProvider, life: timedelta, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._keys, self._life, self._monotonic = keys, life.total_seconds(), monotonic
        self._mutex = threading.Lock()
        self._unwrapped: OrderedDict[tuple[str, bytes, str], tuple[float, bytes]] = OrderedDict()  # oldest first
        self._shared: dict[str, tuple[float, int, DataKey]] = {}  # by region, with the uses that are left

    def create(self, region: str, *, is_shared: bool = False) -> DataKey:
        now = self._monotonic()
        if is_shared:
            with self._mutex:
                until, left, key = self._shared.get(region, (now, 0, None))
                if key is not None and now < until and left > 0:
                    self._shared[region] = (until, left - 1, key)
                    return key
        new = self._keys.create(region, is_shared=is_shared)
        with self._mutex:
            if is_shared:
                self._shared[region] = (now + self._life, SHARED_BY - 1, new)
            self._remember((new.key_id, new.wrapped, region), new.secret, now)  # what is put is often read back
        return new

    def unwrap(self, key_id: str, wrapped: bytes, region: str) -> bytes:
        now, place = self._monotonic(), (key_id, wrapped, region)
        with self._mutex:
            self._forget(now)
            if (found := self._unwrapped.get(place)) is not None:
                return found[1]
        secret = self._keys.unwrap(key_id, wrapped, region)
        with self._mutex:
            self._remember(place, secret, now)
        return secret

    def _remember(self, place: tuple[str, bytes, str], secret: bytes, now: float) -> None:
        self._unwrapped.pop(place, None)
        self._unwrapped[place] = (now + self._life, secret)
        self._forget(now)

    def _forget(self, now: float) -> None:
        while self._unwrapped:
            until, _ = next(iter(self._unwrapped.values()))
            if until > now and len(self._unwrapped) <= CACHED:
                return
            self._unwrapped.popitem(last=False)
