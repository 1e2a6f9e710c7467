"""What the doctor asks beside buckets and queues."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from formats.errors import KeyRefused, StoreUnavailable
from infra.local.aws import CREDENTIALS
from infra.settings.encryption import EncryptionSettings
from infra.settings.storage import S3Settings
from infra.storage.aws import AwsCredentials
from infra.storage.kms_keys import make_kms_client
from replicator.services.setups import STS_ENDPOINT, caller_of, problem_of_new_objects, problem_of_read_key
from tests.fakes.key_files import key_text

if TYPE_CHECKING:
    from infra.local.stack import LocalStack

KEYS: dict[str, Any] = {
    name.removeprefix("aws_"): CREDENTIALS[name] for name in ("aws_access_key_id", "aws_secret_access_key")
}
NOWHERE = "http://127.0.0.1:1"


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    with ExitStack() as resources:
        yield resources


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "keys.toml"
    made.write_text(key_text("new", new=1), encoding="utf-8")
    return made


def test_keys_of_a_file_are_used_once(path: Path, opened: ExitStack) -> None:
    settings = EncryptionSettings(key="file", key_file=path)
    assert problem_of_new_objects(settings, "here", opened) == ""
    path.write_text('current = "none"', encoding="utf-8")
    assert "must be the id of one of [keys]" in problem_of_new_objects(settings, "here", opened)
    path.unlink()
    assert "cannot be read: FileNotFoundError; put it back" in problem_of_new_objects(settings, "here", opened)


def test_another_store_than_aws_has_no_callers(opened: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(STS_ENDPOINT, raising=False)
    assert caller_of(S3Settings(bucket="b", endpoint_url=NOWHERE), opened) == ""


def test_a_caller_that_is_not_known_is_not_absent(opened: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(STS_ENDPOINT, NOWHERE)
    settings = S3Settings(bucket="b", region_name="us-east-1", **KEYS)
    with pytest.raises(StoreUnavailable, match="GetCallerIdentity of STS: "):
        caller_of(settings, opened)


@pytest.mark.integration
class TestOnMoto:
    @pytest.fixture
    def kms(self, stack: LocalStack) -> Iterator[Any]:
        credentials = AwsCredentials(**KEYS)
        made = make_kms_client("us-east-1", endpoint_url=stack.moto.endpoint_url, credentials=credentials, session=None)
        yield made
        made.close()

    def test_the_caller(self, stack: LocalStack, opened: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(STS_ENDPOINT, stack.moto.endpoint_url)
        found = caller_of(S3Settings(bucket="b", region_name="us-east-1", **KEYS), opened)
        assert found.startswith("arn:aws:")

    def test_a_key_of_kms_is_used_once(self, stack: LocalStack, kms: Any, opened: ExitStack) -> None:
        """And one that only reads is asked for."""
        arn = str(kms.create_key()["KeyMetadata"]["Arn"])
        settings = EncryptionSettings(key="kms", kms_key_id=arn, kms_endpoint_url=stack.moto.endpoint_url, **KEYS)
        assert problem_of_new_objects(settings, "here", opened) == ""
        assert problem_of_read_key(settings, arn, opened) == ""
        kms.disable_key(KeyId=arn.rpartition("/")[2])
        assert problem_of_read_key(settings, arn, opened) == "its state is Disabled"
        absent = f"{arn[:-4]}0000"
        with pytest.raises(KeyRefused, match="there is no such key"):
            problem_of_read_key(settings, absent, opened)
        gone = replace(settings, kms_key_id=absent)
        assert "there is no such key: correct the ARN" in problem_of_new_objects(gone, "here", opened)
