"""Whom AWS takes these credentials for."""

from __future__ import annotations

from typing import Any

from formats.errors import StoreUnavailable
from infra.storage.aws import FAILURES, describe_error


class Identity:
    """Thread safe, as the client is."""

    def __init__(self, client: Any) -> None:
        """`client`: of STS."""
        self._client = client

    def arn(self) -> str:
        """Of the user, or of the session of a role. Needs no right. Raises StoreUnavailable."""
        try:
            return str(self._client.get_caller_identity()["Arn"])
        except FAILURES as error:
            raise StoreUnavailable(f"GetCallerIdentity of STS: {describe_error(error)}") from error
