"""The `[encryption]` section: keys that encrypt objects before they are sent to the bucket."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Literal

from infra.settings.field import Problem, enforce, http_url, matching, setting
from infra.settings.storage import AwsSettings

_EXAMPLE = "arn:aws:kms:us-east-1:123456789012:key/ID"
_KEY_ARN = r"arn:aws[a-z-]*:kms:[a-z0-9-]+:\d{12}:key/[\w-]+"
_key_arn = matching(_KEY_ARN, f'the ARN of a KMS key, such as "{_EXAMPLE}"; an alias may come to mean another key')


@dataclass(frozen=True, slots=True, kw_only=True)
class EncryptionSettings(AwsSettings):
    """Keys of encrypted segments and control objects. The credentials are those for KMS."""

    key: Literal["file", "kms"] = field(
        metadata=setting(
            "what wraps the data keys of new objects: a key of key_file, or the KMS key kms_key_id. Objects that the "
            "other one wrapped can be read while its settings are there"
        )
    )
    key_file: Path | None = field(
        default=None,
        metadata=setting("file of keys of 32 bytes, of which `current` is for new objects; read again when it changes"),
    )
    kms_key_id: str | None = field(
        default=None, metadata=setting(f'ARN of the KMS key for new objects, such as "{_EXAMPLE}"', check=_key_arn)
    )
    kms_read_key_ids: tuple[str, ...] = field(
        default=(),
        metadata=setting(
            "ARNs of further KMS keys whose objects are read: earlier ones, and those of other regions' archives"
        ),
    )
    kms_endpoint_url: str | None = field(
        default=None, metadata=setting("another KMS server than AWS's; default: AWS", check=http_url)
    )
    data_key_life: timedelta = field(
        default=timedelta(minutes=5),
        metadata=setting(
            "how long a data key of KMS is kept in memory: for reading again, and for the control objects that are put "
            "meanwhile, at most 1,000; a segment has one of its own",
            minimum=timedelta(seconds=1),
            maximum=timedelta(hours=1),
        ),
    )
    clear_objects: Literal["read", "refuse"] = field(
        default="read",
        metadata=setting("objects in clear, from before they were encrypted: read, and copied by sync; or refused"),
    )
    key_text: str | None = field(default=None, repr=False, compare=False)  # of key_file, for machines without the file

    def __post_init__(self) -> None:
        enforce(self, [*self.credential_problems(), *self._contradictions()])

    def _contradictions(self) -> Iterator[Problem]:
        if self.key == "file" and self.key_file is None:
            yield "key_file", 'missing: key = "file" needs it'
        if self.key == "kms" and self.kms_key_id is None:
            yield "kms_key_id", 'missing: key = "kms" needs the ARN of the key'
        for number, arn in enumerate(self.kms_read_key_ids):
            if (what := _key_arn(arn)) is not None:
                yield f"kms_read_key_ids[{number}]", what
