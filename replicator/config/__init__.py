"""One TOML file, parsed once to immutable settings; every problem is reported at once, each with its path."""

from replicator.config.compaction import CompactionJob, CompactionSettings
from replicator.config.egress import EgressSettings, EgressTopicSettings, StartPolicy
from replicator.config.ingress import IngressSettings, IngressSource
from replicator.config.kafka import KafkaSettings
from replicator.config.load import from_mapping, load, parse
from replicator.config.retention import Held, RetentionRule, RetentionSettings
from replicator.config.settings import Config, LogSettings, MetricsSettings
from replicator.config.storage import S3Settings, SqsSettings
from replicator.config.sync import SyncSettings

__all__ = [
    "CompactionJob",
    "CompactionSettings",
    "Config",
    "EgressSettings",
    "EgressTopicSettings",
    "Held",
    "IngressSettings",
    "IngressSource",
    "KafkaSettings",
    "LogSettings",
    "MetricsSettings",
    "RetentionRule",
    "RetentionSettings",
    "S3Settings",
    "SqsSettings",
    "StartPolicy",
    "SyncSettings",
    "from_mapping",
    "load",
    "parse",
]
