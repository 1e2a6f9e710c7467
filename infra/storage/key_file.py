"""Data keys wrapped by keys of a local file: AES key wrap (RFC 3394).

current = "2026-11"                                   wraps the data keys of new objects

[keys]                                                32 bytes each, in base64
"2026-11" = "…"
"2025-11" = "…"                                       still unwraps what it wrapped
"""

from __future__ import annotations

import base64
import binascii
import os
import re
import threading
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.hazmat.primitives.keywrap import InvalidUnwrap, aes_key_unwrap, aes_key_wrap

from formats.errors import ConfigError, KeyRefused
from infra.contracts.encryption import DATA_KEY_BYTES, DataKey

_KEY_ID = re.compile(r"(?!arn:)[A-Za-z0-9._:@/+-]{1,200}")
_NEW = "make one with `openssl rand -base64 32`"


@dataclass(frozen=True, slots=True)
class FileKeys:
    """The content of a key file."""

    current: str
    keys: Mapping[str, bytes] = field(repr=False)


def parse_key_file(text: str, name: str) -> FileKeys:
    """Raises ConfigError with every problem. No message has a key, nor a part of one: an id that is none may be a key
    that was written on the wrong side, and is not quoted."""
    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        # its message may quote a character of the file, and no more
        raise ConfigError([f"is no TOML: {error}"], source=name) from None
    problems = [
        f"{key if _KEY_ID.fullmatch(key) else 'a key of another form'}: unknown; a key file has `current` and [keys]"
        for key in tree
        if key not in ("current", "keys")
    ]
    table, current = tree.get("keys"), tree.get("current")
    keys: dict[str, bytes] = {}
    if not isinstance(table, dict) or not table:
        problems.append(f"keys: needs at least one key, as [keys] with ID = BASE64; {_NEW}")
        table = {}
    for number, (key_id, value) in enumerate(table.items(), start=1):
        if not _KEY_ID.fullmatch(key_id):
            problems.append(
                f"keys: an id is 1 to 200 of A-Z a-z 0-9 . _ : @ / + -, and no ARN: entry {number} has another one; it "
                "stands on the left, and the key on the right"
            )
        elif (key := _decoded(value)) is None:
            problems.append(f"keys.{key_id}: must be {DATA_KEY_BYTES} bytes in base64; {_NEW}")
        else:
            keys[key_id] = key
    if not isinstance(current, str) or current not in table:
        problems.append("current: must be the id of one of [keys]; new objects are encrypted with it")
    if len(set(keys.values())) < len(keys):
        problems.append(f"keys: two ids have the same key; {_NEW}")
    if problems:
        raise ConfigError(problems, source=name)
    return FileKeys(str(current), keys)


def _decoded(value: object) -> bytes | None:
    try:
        key = base64.b64decode(value, validate=True) if isinstance(value, str) else b""
    except binascii.Error:
        return None
    return key if len(key) == DATA_KEY_BYTES else None


class KeyFile:
    """A `KeyProvider`. Reads its file again when it has changed, so that a key may be added while services run."""

    def __init__(self, path: Path, text: str | None = None) -> None:
        """`text`: the content when this process was started by another one, for a machine that does not have the file.
        Raises ConfigError."""
        self._path = path
        self._mutex = threading.Lock()
        self._state: tuple[int, int, int] | None = None
        self._keys: FileKeys | None = None  # as the file was read last
        self._given = parse_key_file(text, str(path)) if text is not None else None
        try:
            self._read()
        except KeyRefused as error:
            raise ConfigError([str(error)], source="encryption.key_file") from error

    def create(self, region: str, *, is_shared: bool = False) -> DataKey:  # noqa: ARG002  # wrapping is free here
        keys = self._read()
        secret = os.urandom(DATA_KEY_BYTES)
        return DataKey(key_id=keys.current, wrapped=aes_key_wrap(keys.keys[keys.current], secret), secret=secret)

    def unwrap(self, key_id: str, wrapped: bytes, region: str) -> bytes:  # noqa: ARG002
        key = self._read().keys.get(key_id)
        if key is None and self._given is not None:
            key = self._given.keys.get(key_id)
        if key is None:
            raise KeyRefused(
                f"the key {key_id!r} is not in {self._path}: add it to [keys] there; without it, what it encrypted "
                "cannot be read"
            )
        try:
            return aes_key_unwrap(key, wrapped)
        except (InvalidUnwrap, ValueError) as error:
            raise KeyRefused(
                f"the key {key_id!r} of {self._path} is another key than the one of that id with which the object was "
                "encrypted: put that one back under this id"
            ) from error

    def _read(self) -> FileKeys:
        """Of a process that was given the content, a file that cannot be read changes nothing."""
        try:
            return self._read_file()
        except KeyRefused:
            if self._given is None:
                raise
            # once the file was read, it is newer: a key that is not in it any more encrypts nothing
            return self._keys or self._given

    def _read_file(self) -> FileKeys:
        try:
            facts = self._path.stat()
            state = (facts.st_mtime_ns, facts.st_size, facts.st_ino)
            with self._mutex:
                if self._keys is None or state != self._state:
                    self._keys = parse_key_file(self._path.read_text(encoding="utf-8"), str(self._path))
                    self._state = state
                return self._keys
        except (OSError, UnicodeDecodeError) as error:
            raise KeyRefused(f"the key file {self._path} cannot be read: {type(error).__name__}; put it back") from None
        except ConfigError as error:
            raise KeyRefused(f"the key file cannot be used: {error}") from error
