"""Whether a KMS key can be used, by its description: for keys that have wrapped nothing that is there to be read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from infra.storage.kms_keys import region_of, translated_key_error

_ENABLED, _FOR_ENCRYPTION = "Enabled", "ENCRYPT_DECRYPT"


class KmsKeySetup:
    """`client`: of KMS in a region. Raises KeyRefused and StoreUnavailable."""

    def __init__(self, client: Callable[[str], Any]) -> None:
        self._client = client

    def problem(self, arn: str) -> str:
        """Why the key unwraps nothing; empty: it does, for those who have the right."""
        with translated_key_error("DescribeKey", arn):
            found = self._client(region_of(arn)).describe_key(KeyId=arn)["KeyMetadata"]
        if found.get("KeyState") != _ENABLED:
            return f"its state is {found.get('KeyState')}"
        if found.get("KeyUsage", _FOR_ENCRYPTION) != _FOR_ENCRYPTION:
            return f"its usage is {found.get('KeyUsage')}, and not {_FOR_ENCRYPTION}"
        return ""
