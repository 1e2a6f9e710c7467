"""The keys of [encryption], and the stores that use them. Packages of ciphers are imported on first use: without the
section nothing needs them."""

# ruff: noqa: PLC0415

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from formats.errors import ConfigError, KeyRefused
from infra.contracts.encryption import DataKey, KeyProvider
from infra.contracts.storage import ObjectStore
from infra.runtime.lifecycle import Stop
from infra.runtime.retry import RetryPolicy
from infra.settings.encryption import EncryptionSettings
from infra.storage.encrypted import EncryptedObjectStore, SealedOnlyStore
from replicator.services.credentials import credentials_of

if TYPE_CHECKING:
    import boto3

_ARN = "arn:"


def _no_problem(_operation: str, _reason: str | None) -> None:
    pass


@dataclass(frozen=True, slots=True)
class KeyRetries:
    """How requests for keys are retried: as those for objects."""

    stop: Stop
    policy: RetryPolicy
    on_problem: Callable[[str, str | None], None] = _no_problem


def encrypted(
    objects: ObjectStore,
    settings: EncryptionSettings | None,
    prefix: str,
    retries: KeyRetries,
    resources: ExitStack,
    *,
    session: boto3.Session | None = None,
) -> ObjectStore:
    """`objects`, encrypted as `settings` say. Without settings, they are put in clear, and an encrypted one is an error
    that names its key. Raises ConfigError for a key file that cannot be used."""
    if settings is None:
        return EncryptedObjectStore(objects, prefix, None)
    keys = key_provider(settings, retries, resources, session)
    return EncryptedObjectStore(objects, prefix, keys, refuses_clear=settings.clear_objects == "refuse")


def sealed_only(
    objects: ObjectStore, settings: EncryptionSettings | None, on_refused: Callable[[str], None]
) -> ObjectStore:
    """The destination of copies: where objects in clear are refused, it takes none. `on_refused`: called with the key
    of each, on the thread of the put."""
    if settings is not None and settings.clear_objects == "refuse":
        return SealedOnlyStore(objects, on_refused)
    return objects


def key_provider(
    settings: EncryptionSettings, retries: KeyRetries, resources: ExitStack, session: boto3.Session | None = None
) -> KeyProvider:
    """Its clients are closed with `resources`. Raises ConfigError for a key file that cannot be used."""
    from infra.storage.key_file import KeyFile
    from infra.storage.kms_keys import CachedKeys, KmsKeys, RetryingKeys

    def retrying(keys: KeyProvider) -> KeyProvider:
        return RetryingKeys(keys, stop=retries.stop, policy=retries.policy, on_problem=retries.on_problem)

    file = retrying(KeyFile(settings.key_file, settings.key_text)) if settings.key_file is not None else None
    kms: KeyProvider | None = None
    if settings.kms_key_id is not None or settings.kms_read_key_ids:
        keys = KmsKeys(settings.kms_key_id, settings.kms_read_key_ids, kms_clients(settings, resources, session))
        kms = CachedKeys(retrying(keys), settings.data_key_life)
    return _Keys(file=file, kms=kms, creates=file if settings.key == "file" else kms)


def kms_clients(
    settings: EncryptionSettings, resources: ExitStack, session: boto3.Session | None = None
) -> Callable[[str], Any]:
    """A client of KMS in a region, with the credentials of the section; closed with `resources`."""
    from infra.storage.kms_keys import make_kms_client

    def client(region: str) -> Any:
        made = make_kms_client(
            region, endpoint_url=settings.kms_endpoint_url, credentials=credentials_of(settings), session=session
        )
        resources.callback(made.close)
        return made

    return client


@dataclass(frozen=True, slots=True, kw_only=True)
class _Keys:
    """A `KeyProvider`: the one for new objects, and by the key's id that of an object."""

    file: KeyProvider | None
    kms: KeyProvider | None
    creates: KeyProvider | None

    def create(self, region: str, *, is_shared: bool = False) -> DataKey:
        assert self.creates is not None, "checked by EncryptionSettings"
        return self.creates.create(region, is_shared=is_shared)

    def unwrap(self, key_id: str, wrapped: bytes, region: str) -> bytes:
        if key_id.startswith(_ARN):
            if self.kms is None:
                raise KeyRefused(
                    f"it is encrypted with the KMS key {key_id}: add it to encryption.kms_read_key_ids, if it is ours"
                )
            return self.kms.unwrap(key_id, wrapped, region)
        if self.file is None:
            raise KeyRefused(
                f"it is encrypted with the key {key_id!r} of a key file: set encryption.key_file to one that has it"
            )
        return self.file.unwrap(key_id, wrapped, region)


def encryption_for_workers(settings: EncryptionSettings | None) -> EncryptionSettings | None:
    """The settings for machines that do not have the key file. Raises ConfigError."""
    if settings is None or settings.key_file is None or settings.key_text is not None:
        return settings
    return replace(settings, key_text=_read(settings.key_file))


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError([f"encryption.key_file: {path} cannot be read: {type(error).__name__}"]) from error
