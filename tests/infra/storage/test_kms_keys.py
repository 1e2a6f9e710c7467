"""Data keys from KMS: moto's, and one that answers as a test says."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from io import BytesIO
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError

from formats.errors import ConfigError, KeyRefused, KeyUnavailable, StoreRefused, StoreUnavailable
from infra.contracts.encryption import DataKey
from infra.local.aws import CREDENTIALS
from infra.runtime.retry import RetryPolicy
from infra.storage.aws import AwsCredentials
from infra.storage.encrypted import EncryptedObjectStore
from infra.storage.key_setup import KmsKeySetup
from infra.storage.kms_keys import (
    CACHED,
    READ_ATTEMPTS,
    SHARED_BY,
    CachedKeys,
    KmsKeys,
    RetryingKeys,
    make_kms_client,
    region_of,
    same_key,
)
from infra.storage.memory_and_folder import MemoryObjectStore
from tests.contracts.store import KEY, get, put
from tests.infra.storage.test_retrying import FastStop

if TYPE_CHECKING:
    from infra.local.stack import LocalStack

CONTROL = "data/eu-west-1/_control/v1/places/orders"
ARN = "arn:aws:kms:us-east-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab"
MULTI = "arn:aws:kms:us-east-1:123456789012:key/mrk-1234abcd12ab34cd56ef1234567890ab"
KEYS = AwsCredentials(
    access_key_id=CREDENTIALS["aws_access_key_id"], secret_access_key=CREDENTIALS["aws_secret_access_key"]
)


@pytest.mark.integration
class TestOnMoto:
    @pytest.fixture(scope="class")
    @classmethod
    def kms(cls, stack: LocalStack) -> Iterator[Any]:
        with closing(
            make_kms_client("us-east-1", endpoint_url=stack.moto.endpoint_url, credentials=KEYS, session=None)
        ) as made:
            yield made

    @staticmethod
    def key(kms: Any, **options: Any) -> str:
        return str(kms.create_key(**options)["KeyMetadata"]["Arn"])

    @staticmethod
    def around(below: MemoryObjectStore, kms: Any, current: str | None, *others: str) -> EncryptedObjectStore:
        return EncryptedObjectStore(below, "data", KmsKeys(current, others, lambda _region: kms))

    def test_objects_are_read_with_the_key_that_encrypted_them(self, kms: Any) -> None:
        below, first, second = MemoryObjectStore(), self.key(kms), self.key(kms)
        put(self.around(below, kms, first), KEY, b"one")
        rotated = self.around(below, kms, second, first)
        put(rotated, f"{KEY}0", b"two")
        assert get(rotated, KEY) == b"one"
        assert get(self.around(below, kms, None, second), f"{KEY}0") == b"two"

    def test_a_key_that_the_configuration_does_not_have_is_not_used(self, kms: Any) -> None:
        below, ours, theirs = MemoryObjectStore(), self.key(kms), self.key(kms)
        put(self.around(below, kms, theirs), KEY, b"x")
        with pytest.raises(KeyRefused, match=r"is not one of \[encryption\]: .*encryption\.kms_read_key_ids") as caught:
            self.around(below, kms, ours).open(KEY)
        assert theirs in str(caught.value)
        assert KEY in str(caught.value)

    def test_a_key_that_may_be_asked_for_says_whether_it_can_be_used(self, kms: Any) -> None:
        setup, arn = KmsKeySetup(lambda _region: kms), self.key(kms)
        assert setup.problem(arn) == ""
        kms.disable_key(KeyId=arn.rpartition("/")[2])
        assert setup.problem(arn) == "its state is Disabled"
        signs = self.key(kms, KeyUsage="SIGN_VERIFY", KeySpec="RSA_2048")
        assert setup.problem(signs) == "its usage is SIGN_VERIFY, and not ENCRYPT_DECRYPT"
        with pytest.raises(KeyRefused, match=r"DescribeKey .*there is no such key: correct the ARN"):
            setup.problem(ARN)

    def test_a_data_key_is_of_its_region(self, kms: Any) -> None:
        arn = self.key(kms)
        keys = KmsKeys(arn, (), lambda _region: kms)
        data_key = keys.create("eu-west-1")
        assert keys.unwrap(arn, data_key.wrapped, "eu-west-1") == data_key.secret
        with pytest.raises(KeyRefused, match=r"Decrypt with KMS key .*InvalidCiphertextException.*another region"):
            keys.unwrap(arn, data_key.wrapped, "us-east-1")

    def test_an_absent_key_is_named(self, kms: Any) -> None:
        with pytest.raises(KeyRefused, match=f"{ARN}: .*NotFoundException.*no such key: correct the ARN"):
            put(self.around(MemoryObjectStore(), kms, ARN), KEY, b"x")

    def test_no_server(self) -> None:
        client = make_kms_client("us-east-1", endpoint_url="http://127.0.0.1:1", credentials=KEYS, session=None)
        with closing(client), pytest.raises(StoreUnavailable, match="check the network to KMS") as caught:
            KmsKeys(ARN, (), lambda _region: client).create("a")
        assert not isinstance(caught.value, StoreRefused)


# --- which key ---


def test_replicas_of_a_multi_region_key_are_one_key() -> None:
    there = MULTI.replace("us-east-1", "eu-west-1")
    assert same_key(there, MULTI)
    assert not same_key(there, MULTI.replace("123456789012", "210987654321"))
    assert not same_key(ARN.replace("us-east-1", "eu-west-1"), ARN)
    assert not same_key(MULTI, "arn:aws:kms:us-east-1:123456789012:alias/mrk-x")
    assert region_of(there) == "eu-west-1"


class Answering:
    """A client of KMS in one region."""

    def __init__(self, region: str, asked: list[tuple[str, str]], failures: list[Exception]) -> None:
        self.region, self.asked, self.failures = region, asked, failures

    def decrypt(self, *, KeyId: str, **_: object) -> dict[str, bytes]:  # noqa: N803
        self.asked.append((self.region, KeyId))
        if self.failures:
            raise self.failures.pop(0)
        return {"Plaintext": b"s" * 32}


def test_the_region_of_the_configured_key_is_asked() -> None:
    """The region that wrote the archive may be lost."""
    asked: list[tuple[str, str]] = []
    here = MULTI.replace("us-east-1", "eu-west-1")
    keys = KmsKeys(here, (ARN,), lambda region: Answering(region, asked, []))
    keys.unwrap(MULTI, b"w", "us-east-1")
    keys.unwrap(ARN, b"w", "us-east-1")
    assert asked == [("eu-west-1", here), ("us-east-1", ARN)]


def refused(code: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": "as the test says"}}, "Decrypt")


@pytest.mark.parametrize(
    ("code", "remedy"),
    [
        ("DisabledException", "enable the key"),
        ("KMSInvalidStateException", "cancel its deletion"),
        ("IncorrectKeyException", "add that one to encryption.kms_read_key_ids"),
        ("UnrecognizedClientException", "repair the credentials of"),
    ],
)
def test_what_an_operator_repairs_is_refused_with_the_remedy(code: str, remedy: str) -> None:
    keys = KmsKeys(ARN, (), lambda region: Answering(region, [], [refused(code)]))
    with pytest.raises(KeyRefused, match=f"Decrypt with KMS key {ARN}: .*{code}.*{remedy}"):
        keys.unwrap(ARN, b"w", "a")


def test_a_denial_names_the_action() -> None:
    keys = KmsKeys(ARN, (), lambda region: Answering(region, [], [refused("AccessDeniedException")]))
    with pytest.raises(KeyRefused, match=f"{ARN}: .*allow kms:Decrypt on it to these credentials"):
        keys.unwrap(ARN, b"w", "a")


@pytest.mark.parametrize(
    "failure",
    [refused("ThrottlingException"), refused("KMSInternalException"), EndpointConnectionError(endpoint_url="http://k")],
    ids=["throttled", "internal", "network"],
)
def test_what_may_pass_is_tried_again(failure: Exception) -> None:
    asked: list[tuple[str, str]] = []
    keys = KmsKeys(ARN, (), lambda region: Answering(region, asked, [failure, failure]))
    retrying = RetryingKeys(keys, stop=FastStop(), policy=RetryPolicy(attempts=4, raises_refusals=True))
    assert retrying.unwrap(ARN, b"w", "a") == b"s" * 32
    assert len(asked) == 3


@pytest.mark.parametrize(
    ("failure", "end"),
    [
        (
            refused("ThrottlingException"),
            "; if this lasts, raise the quota of KMS requests of its account and region, which S3's aws:kms shares",
        ),
        (refused("KMSInternalException"), "KMSInternalException: as the test says"),
        (EndpointConnectionError(endpoint_url="http://k"), "; check the network to KMS"),
    ],
    ids=["throttled", "internal", "network"],
)
def test_only_where_kms_does_not_answer_the_network_is_to_be_checked(failure: Exception, end: str) -> None:
    keys = KmsKeys(ARN, (), lambda region: Answering(region, [], [failure]))
    with pytest.raises(KeyUnavailable) as raised:
        keys.unwrap(ARN, b"w", "a")
    assert str(raised.value).endswith(end)


class Refusing:
    """A `KeyProvider` that lacks the key, the first times that it is asked."""

    def __init__(self, times: int) -> None:
        self.left, self.asked = times, 0

    def create(self, region: str, *, is_shared: bool = False) -> DataKey:
        return DataKey(key_id=ARN, wrapped=b"w", secret=self.unwrap(ARN, b"w", region))

    def unwrap(self, key_id: str, wrapped: bytes, region: str) -> bytes:
        self.asked += 1
        if self.asked <= self.left:
            raise KeyRefused("planned")
        return b"s" * 32


def test_an_object_whose_key_is_missing_holds_no_thread_of_a_service() -> None:
    """Few threads read for all partitions: the one of this object waits, and says why, and the others go on."""
    refusing = Refusing(3)
    with pytest.raises(KeyRefused, match="planned"):
        RetryingKeys(refusing, stop=FastStop()).unwrap(ARN, b"w", "a")
    assert refusing.asked == 1


def test_a_kms_that_does_not_answer_holds_no_thread_of_a_service() -> None:
    """It may be that of one region, which is down, while the segments of others arrive."""
    asked: list[tuple[str, str]] = []
    keys = KmsKeys(ARN, (), lambda region: Answering(region, asked, [EndpointConnectionError(endpoint_url="k")] * 9))
    with pytest.raises(KeyUnavailable, match="check the network to KMS"):
        RetryingKeys(keys, stop=FastStop()).unwrap(ARN, b"w", "a")
    assert len(asked) == READ_ATTEMPTS


def test_a_service_waits_until_it_may_encrypt() -> None:
    """Without a key for new objects, no partition can go on."""
    assert RetryingKeys(Refusing(3), stop=FastStop()).create("a").secret == b"s" * 32
    refusing = Refusing(1)
    with pytest.raises(KeyRefused, match="planned"):
        RetryingKeys(refusing, stop=FastStop(), policy=RetryPolicy(raises_refusals=True)).create("a")
    assert refusing.asked == 1


# --- data keys in memory ---


class Counting:
    """A `KeyProvider` whose data keys differ."""

    def __init__(self) -> None:
        self.created = self.unwrapped = 0

    def create(self, region: str, *, is_shared: bool = False) -> DataKey:
        self.created += 1
        return DataKey(key_id=ARN, wrapped=b"w%d" % self.created, secret=b"%032d" % self.created)

    def unwrap(self, key_id: str, wrapped: bytes, region: str) -> bytes:
        self.unwrapped += 1
        return b"%032d" % int(wrapped[1:])


class World:
    def __init__(self) -> None:
        self.keys, self.now, self.below = Counting(), 100.0, MemoryObjectStore()
        cached = CachedKeys(self.keys, timedelta(seconds=60), lambda: self.now)
        self.store = EncryptedObjectStore(self.below, "data", cached)


@pytest.fixture
def world() -> World:
    return World()


def test_a_segment_has_a_data_key_of_its_own_and_control_objects_share_one(world: World) -> None:
    for number in range(3):
        put(world.store, f"{KEY}{number}", b"x")
    assert world.keys.created == 3
    for number in range(5):
        put(world.store, f"{CONTROL}{number}", b"x")
    assert world.keys.created == 4
    put(world.store, CONTROL.replace("eu-west-1", "us-east-1"), b"x")  # of another archive
    assert world.keys.created == 5
    put(world.store, KEY, b"x")
    assert world.keys.created == 6, "a segment does not take the shared one"


def test_a_shared_data_key_ends_by_time_and_by_number(world: World) -> None:
    put(world.store, f"{CONTROL}a", b"x")
    world.now += 59
    put(world.store, f"{CONTROL}b", b"x")
    assert world.keys.created == 1
    world.now += 1
    for number in range(SHARED_BY + 1):
        world.store.put_new(f"{CONTROL}{number}", BytesIO(b"x"), 1)
    assert world.keys.created == 3


def test_an_object_read_again_costs_one_request_for_a_time(world: World) -> None:
    put(world.store, KEY, b"x")
    elsewhere = CachedKeys(world.keys, timedelta(seconds=60), lambda: world.now)
    store = EncryptedObjectStore(world.below, "data", elsewhere)
    for _ in range(3):
        assert get(store, KEY) == b"x"
    assert world.keys.unwrapped == 1
    world.now += 60
    assert get(store, KEY) == b"x"
    assert world.keys.unwrapped == 2


def test_no_more_data_keys_are_kept_than_are_useful(world: World) -> None:
    keys = CachedKeys(world.keys, timedelta(hours=1), lambda: world.now)
    for number in range(CACHED + 1):
        keys.unwrap(ARN, b"w%d" % number, "a")
    keys.unwrap(ARN, b"w%d" % CACHED, "a")
    assert world.keys.unwrapped == CACHED + 1
    keys.unwrap(ARN, b"w0", "a")
    assert world.keys.unwrapped == CACHED + 2


def test_secrets_are_not_printed(world: World) -> None:
    key = world.keys.create("a")
    assert "0000" not in repr(key)


def test_settings_that_cannot_be() -> None:
    from replicator.config.load import parse  # noqa: PLC0415

    text = 'region = "a"\n[s3]\nbucket = "b"\n[encryption]\n'
    for section, problem in (
        ("", "encryption.key: missing"),
        ('key = "file"', "encryption.key_file: missing"),
        ('key = "kms"', "encryption.kms_key_id: missing"),
        ('key = "kms"\nkms_key_id = "alias/archive"', "an alias may come to mean another key"),
        (
            f'key = "kms"\nkms_key_id = "{ARN}"\nkms_read_key_ids = ["{ARN}", "x"]',
            r"kms_read_key_ids\[1\]: must be the",
        ),
        ('key = "none"', "encryption.key: must be"),
    ):
        with pytest.raises(ConfigError, match=problem):
            parse(text + section)
