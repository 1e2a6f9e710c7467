"""Which rights a refused upload lacks, by a store that refuses what it is asked to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
from botocore.exceptions import ClientError

from formats.errors import StoreUnavailable
from infra.storage.upload_rights import ABORT, PUT, RETAIN, refusals

LOCKED = {"StorageClass": "STANDARD", "ObjectLockMode": "GOVERNANCE", "ObjectLockRetainUntilDate": "later"}
PLAIN = {"StorageClass": "STANDARD"}


class Client:
    """Of a bucket whose policy denies `denied` actions; `fails` is the status of every other answer."""

    def __init__(self, denied: Sequence[str] = (), fails: int = 0) -> None:
        self.denied, self.fails = denied, fails
        self.uploads: set[str] = set()

    def create_multipart_upload(self, **arguments: Any) -> Mapping[str, Any]:
        self._asked("CreateMultipartUpload", [PUT, *([RETAIN] if "ObjectLockMode" in arguments else [])])
        self.uploads.add("u")
        return {"UploadId": "u"}

    def abort_multipart_upload(self, **arguments: Any) -> None:
        self._asked("AbortMultipartUpload", [ABORT])
        self.uploads.remove(arguments["UploadId"])

    def _asked(self, operation: str, actions: Sequence[str]) -> None:
        if self.fails:
            raise _error(operation, "InternalError", self.fails)
        if any(action in self.denied for action in actions):
            raise _error(operation, "AccessDenied", 403)


def _error(operation: str, code: str, status: int) -> ClientError:
    response: Any = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(response, operation)


def cases() -> Iterator[tuple[Mapping[str, str], Sequence[str], set[str]]]:
    for arguments in (LOCKED, PLAIN):
        yield arguments, [], set()
        yield arguments, [PUT], {PUT}
        yield arguments, [ABORT], {ABORT}
    yield LOCKED, [RETAIN], {RETAIN}
    yield PLAIN, [RETAIN], set()
    yield LOCKED, [RETAIN, ABORT], {RETAIN, ABORT}
    yield LOCKED, [RETAIN, PUT], {PUT}


@pytest.mark.parametrize(("arguments", "denied", "wanted"), list(cases()))
def test_each_right_that_lacks_is_named(arguments: Mapping[str, str], denied: Sequence[str], wanted: set[str]) -> None:
    client: Any = Client(denied)
    found = refusals(client, "b", "k", arguments)
    assert set(found) == wanted
    assert all("AccessDenied" in reason for reason in found.values())
    assert (client.uploads == set()) is (ABORT not in wanted)


def test_no_answer_is_no_refusal() -> None:
    client: Any = Client(fails=500)
    with pytest.raises(StoreUnavailable):
        refusals(client, "b", "k", PLAIN)
