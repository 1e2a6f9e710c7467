"""The credentials of one bucket, queue or key, by its settings."""

from __future__ import annotations

from infra.settings.storage import ROLE_SESSION_NAME, AwsSettings
from infra.storage.aws import AssumedRole, AwsCredentials


def credentials_of(settings: AwsSettings) -> AwsCredentials:
    role = settings.role_arn and AssumedRole(
        arn=settings.role_arn,
        external_id=settings.external_id,
        session_name=settings.role_session_name or ROLE_SESSION_NAME,
        duration=settings.role_duration,
    )
    return AwsCredentials(
        access_key_id=settings.access_key_id,
        secret_access_key=settings.secret_access_key,
        session_token=settings.session_token,
        profile=settings.profile,
        role=role or None,
    )
