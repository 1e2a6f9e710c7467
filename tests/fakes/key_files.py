"""Key files of tests."""

from __future__ import annotations

import base64
from pathlib import Path

from infra.contracts.storage import ObjectStore
from infra.storage.encrypted import EncryptedObjectStore
from infra.storage.key_file import KeyFile

BOTH = {"new": 1, "old": 2}


def key_text(current: str, **keys: int) -> str:
    """A key file: each key has one byte 32 times."""
    lines = [f'"{key_id}" = "{base64.b64encode(bytes([number]) * 32).decode()}"' for key_id, number in keys.items()]
    return "\n".join([f'current = "{current}"', "[keys]", *lines])


def keys_of(current: str = "new", **keys: int) -> KeyFile:
    return KeyFile(Path("/keys/archive.toml"), key_text(current, **(keys or BOTH)))


def encrypted_around(store: ObjectStore, keys: KeyFile | None = None, prefix: str = "data") -> EncryptedObjectStore:
    return EncryptedObjectStore(store, prefix, keys or keys_of())
