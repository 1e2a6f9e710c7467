"""Objects in cold storage classes, by a server that answers as a test says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any

import pytest
from botocore.stub import Stubber

from formats.errors import ObjectFrozen, SegmentNotFound, StoreRefused, StoreUnavailable
from infra.contracts.storage import Thaw
from infra.storage.s3_glacier import S3Cold
from infra.storage.s3_reader import open_object
from tests.contracts.store import KEY
from tests.infra.storage.test_s3 import client_of


@pytest.fixture
def stub() -> Iterator[Stubber]:
    with closing(client_of("http://localhost:1")) as client, Stubber(client) as made:
        yield made


@pytest.fixture
def cold(stub: Stubber) -> S3Cold:
    client: Any = stub.client
    return S3Cold(client, "b")


@pytest.mark.parametrize(
    ("restore", "state"),
    [
        (None, Thaw.FROZEN),
        ('ongoing-request="true"', Thaw.UNDER_WAY),
        ('ongoing-request="false", expiry-date="Fri, 21 Dec 2012 00:00:00 GMT"', Thaw.READABLE),
    ],
)
def test_the_state_of_an_object(stub: Stubber, cold: S3Cold, restore: str | None, state: Thaw) -> None:
    stub.add_response("head_object", {} if restore is None else {"Restore": restore})
    assert cold.state(KEY) is state


def test_an_object_that_was_removed_is_not_found(stub: Stubber, cold: S3Cold) -> None:
    stub.add_client_error("head_object", "404", "Not Found", 404)
    stub.add_response("head_bucket", {})
    with pytest.raises(SegmentNotFound, match=KEY):
        cold.state(KEY)
    stub.add_client_error("restore_object", "NoSuchKey", "The specified key does not exist.", 404)
    with pytest.raises(SegmentNotFound, match=KEY):
        cold.thaw(KEY, 7)


def test_a_failure_is_no_absence(stub: Stubber, cold: S3Cold) -> None:
    stub.add_client_error("head_object", "500", "Internal Server Error", 500)
    with pytest.raises(StoreUnavailable, match=f"HeadObject .*{KEY}: 500"):
        cold.state(KEY)
    stub.add_client_error("head_object", "404", "Not Found", 404)
    stub.add_client_error("head_bucket", "404", "Not Found", 404)
    with pytest.raises(StoreRefused, match="the bucket b does not exist"):
        cold.state(KEY)


@pytest.mark.parametrize(
    ("more", "advice"),
    [
        ({"StorageClass": "GLACIER"}, "`replicator restore --thaw` requests its retrieval"),
        (
            {"StorageClass": "INTELLIGENT_TIERING", "AccessTier": "ARCHIVE_ACCESS"},
            "tier ARCHIVE_ACCESS of S3 Intelligent-Tiering: request its retrieval with `aws s3api restore-object`",
        ),
    ],
)
def test_who_reads_a_cold_object_is_sent_to_what_retrieves_it(
    stub: Stubber, more: Mapping[str, str], advice: str
) -> None:
    """A listing shows no archive tier, so `restore --thaw` asks for none of these."""
    client: Any = stub.client
    stub.add_client_error("get_object", "InvalidObjectState", "no", 403, service_error_meta=dict(more))
    with pytest.raises(ObjectFrozen, match=advice) as raised:
        open_object(client, "b", KEY)
    assert ("--thaw" in str(raised.value)) == ("AccessTier" not in more)


def test_a_request_that_was_made_before_is_no_error(stub: Stubber, cold: S3Cold) -> None:
    stub.add_client_error("restore_object", "RestoreAlreadyInProgress", "", 409)
    cold.thaw(KEY, 7)
