"""One TOML file, parsed once to immutable settings; every problem is reported at once, each with its path."""

from compaction.retention_settings import HeldOffsets, RetentionRule, RetentionSettings
from compaction.settings import CompactionJob, CompactionSettings
from egress.settings import EgressSettings, EgressTopicSettings, StartPolicy
from egress.sync_settings import SyncSettings
from infra.settings.kafka import KafkaSettings
from infra.settings.storage import S3Settings, SqsSettings
from ingress.settings import IngressSettings
from ingress.source_settings import IngressSource
from replicator.config.load import SettingsFile, from_mapping, load, parse
from replicator.config.settings import Config, LogSettings, MetricsSettings

__all__ = [
    "CompactionJob",
    "CompactionSettings",
    "Config",
    "EgressSettings",
    "EgressTopicSettings",
    "HeldOffsets",
    "IngressSettings",
    "IngressSource",
    "KafkaSettings",
    "LogSettings",
    "MetricsSettings",
    "RetentionRule",
    "RetentionSettings",
    "S3Settings",
    "SettingsFile",
    "SqsSettings",
    "StartPolicy",
    "SyncSettings",
    "from_mapping",
    "load",
    "parse",
]
