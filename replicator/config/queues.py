"""Which notification queue a file means: by a URL, or by a name in an AWS region or on another server. Pure.

A name does not have the account, nor always the AWS region, and the URL on another server has no region: what is not
named may be the same. Two names are of one queue only where the files name the same of both.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from infra.settings.storage import SqsSettings

_AWS = re.compile(r"(?P<head>.*)\.(amazonaws\.com(\.cn)?|api\.aws)")
_REGION = re.compile(r"(.*\.)?sqs(-fips)?\.(?P<new>[a-z0-9-]+)(\.vpce)?|(?P<old>[a-z0-9-]+)\.queue|queue")
_FIRST_REGION = "us-east-1"  # of queue.amazonaws.com


@dataclass(frozen=True, slots=True)
class _Queue:
    """`server`: host and port; empty: AWS. None: not known."""

    server: str
    region: str | None
    account: str | None
    name: str


def is_url(settings: SqsSettings) -> bool:
    return "://" in settings.queue


def is_same_queue(one: SqsSettings, other: SqsSettings) -> bool:
    """Whether both are one queue, as far as they tell."""
    if not is_url(one) and not is_url(other):
        names = [(each.queue, each.endpoint_url, each.region_name) for each in (one, other)]
        accounts = {_account_of_role(one), _account_of_role(other)} - {None}
        return names[0] == names[1] and len(accounts) < 2
    a, b = _queue_of(one), _queue_of(other)
    known = ((a.region, b.region), (a.account, b.account))
    return (a.server, a.name) == (b.server, b.name) and all(None in pair or pair[0] == pair[1] for pair in known)


def _queue_of(settings: SqsSettings) -> _Queue:
    if not is_url(settings):
        server, region = _server_of(settings.endpoint_url or "")
        return _Queue(server, region or settings.region_name, _account_of_role(settings), settings.queue)
    server, region = _server_of(settings.queue)
    account, _, name = urlsplit(settings.queue).path.strip("/").rpartition("/")
    return _Queue(server, region, account.rpartition("/")[2], name)


def _account_of_role(settings: SqsSettings) -> str | None:
    """A queue that is given by its name is of the account whose credentials ask for it."""
    return settings.role_arn.split(":")[4] if settings.role_arn else None


def _server_of(url: str) -> tuple[str, str | None]:
    """The server, and the AWS region that its name tells."""
    where = urlsplit(url)
    aws = _AWS.fullmatch(where.hostname or "")
    if aws is None:
        return where.netloc.lower(), None
    found = _REGION.fullmatch(aws["head"])
    return "", None if found is None else found["new"] or found["old"] or _FIRST_REGION
