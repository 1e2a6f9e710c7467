"""The whole configuration, as immutable values. Each setting has its default and its reason in its class."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from compaction.retention_settings import RetentionSettings
from compaction.settings import CompactionSettings
from egress.settings import EgressSettings
from egress.sync_settings import SyncSettings
from formats.errors import ConfigError
from infra.settings.encryption import EncryptionSettings
from infra.settings.field import Problem, dotted, enforce, listen_address, matching, not_blank, region_name, setting
from infra.settings.kafka import KafkaSettings
from infra.settings.schema_registry import SchemaRegistrySettings
from infra.settings.storage import S3Settings, SqsSettings
from ingress.groups.settings import GroupSettings
from ingress.settings import IngressSettings
from replicator.config.contradictions import NO_KAFKA, NO_QUEUE, between


def _without_colon(value: str) -> str | None:
    return "must not contain a colon" if ":" in value else not_blank(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsSettings:
    """Where this process can be watched."""

    listen: str | None = field(
        default=None,
        metadata=setting(
            '"host:port" of /metrics, /healthz, /readyz; a port alone is one of this machine only; default: none',
            check=listen_address,
        ),
    )
    tls_cert: Path | None = field(
        default=None,
        metadata=setting(
            "PEM file of the certificate, followed by those above it: listen serves TLS only; a renewed file is taken "
            "over; default: plain HTTP"
        ),
    )
    tls_key: Path | None = field(default=None, metadata=setting("PEM file of its key, which has no password"))
    username: str | None = field(
        default=None, metadata=setting("of HTTP's basic authentication; without a colon", check=_without_colon)
    )
    password: str | None = field(
        default=None,
        repr=False,
        metadata=setting(
            "required with username; only as ${ENV}. /metrics then asks for it, and /healthz and /readyz show details "
            "only with it",
            secret=True,
            check=not_blank,
        ),
    )

    def __post_init__(self) -> None:
        enforce(self, self._contradictions())

    def _contradictions(self) -> Iterator[Problem]:
        for one, other in (("tls_cert", "tls_key"), ("username", "password")):
            for name, needed in ((one, other), (other, one)):
                if getattr(self, name) is not None and getattr(self, needed) is None:
                    yield name, f"needs {needed}; give both, or neither"
        if self.listen is None and (self.tls_cert is not None or self.username is not None):
            yield "listen", "missing: what is secured is not served; set it, or take the rest of [metrics] out"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    """What is written to stderr, one event per line."""

    level: Literal["debug", "info", "warning", "error"] | None = field(
        default=None,
        metadata=setting("lowest level written; default: info of services, warning of commands that end by themselves"),
    )
    format: Literal["json", "text"] | None = field(
        default=None,
        metadata=setting(
            "one JSON object per line, or plain text; default: json of services, text of commands that end by "
            "themselves"
        ),
    )

    def __post_init__(self) -> None:
        enforce(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """One file, for every command."""

    region: str = field(metadata=setting("this region: the name its archive carries", check=region_name))
    s3: S3Settings = field(metadata=setting("[s3]: this region's bucket"))
    kafka: KafkaSettings | None = field(
        default=None, metadata=setting("[kafka]: this region's cluster; what works on the archive alone needs none")
    )
    format: str = field(
        default="parquet", metadata=setting("format of new segments, by entry-point name", check=not_blank)
    )
    format_options: Mapping[str, object] = field(
        default_factory=dict, metadata=setting("[format_options]: arguments of that format")
    )
    created_by: str | None = field(
        default=None,
        metadata=setting(
            "your name for this installation, in the footer of each segment that it writes; no secret",
            check=matching(r"[^\x00-\x1f\x7f]{1,200}", "1 to 200 printable characters"),
        ),
    )
    encryption: EncryptionSettings | None = field(
        default=None, metadata=setting("[encryption]: keys that encrypt objects before they are sent to the bucket")
    )
    egress: EgressSettings | None = field(default=None, metadata=setting("[egress]: topics to archive"))
    sqs: SqsSettings | None = field(default=None, metadata=setting("[sqs]: the queue ingress learns of segments from"))
    ingress: IngressSettings | None = field(default=None, metadata=setting("[ingress]: archived topics to deliver"))
    sync: SyncSettings | None = field(default=None, metadata=setting("[sync]: copy segments to another bucket"))
    compaction: CompactionSettings | None = field(
        default=None, metadata=setting("[compaction]: merge segments into larger ones")
    )
    retention: RetentionSettings | None = field(
        default=None, metadata=setting("[retention]: how long the archive is kept")
    )
    schema_registry: SchemaRegistrySettings | None = field(
        default=None, metadata=setting("[schema_registry]: whose schemas are copied, or restored into")
    )
    groups: GroupSettings = field(
        default_factory=GroupSettings, metadata=setting("[groups]: how consumer groups of the sources arrive here")
    )
    metrics: MetricsSettings = field(default_factory=MetricsSettings, metadata=setting("[metrics]: what is exported"))
    log: LogSettings = field(default_factory=LogSettings, metadata=setting("[log]: what is written to stderr"))
    source: str = "python"  # name of the file, for messages
    # of a file of several regions: why a section is not there, by its name, for messages
    absent: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        problems = between(
            region=self.region,
            s3=self.s3,
            sqs=self.sqs,
            egress=self.egress,
            ingress=self.ingress,
            sync=self.sync,
            compaction=self.compaction,
            retention=self.retention,
        )
        missing = [NO_QUEUE] if self.ingress is not None and self.sqs is None else []
        if self.kafka is None and (self.egress is not None or self.ingress is not None):
            missing.append(NO_KAFKA)  # sync, compaction, retention and the Spark source need none
        enforce(self, [*problems, *missing, *self._levels_without_zstd()])

    def _levels_without_zstd(self) -> Iterator[Problem]:
        """A level of a topic would be an argument that the format does not take; that of a job would be left out."""
        codec = self.format_options.get("compression", "zstd")
        if self.format == "parquet" and codec == "zstd":
            return
        topics = () if self.egress is None else self.egress.topics
        jobs = () if self.compaction is None else self.compaction.jobs
        levels: dict[tuple[str | int, ...], int | None] = {
            **{("egress", "topics", rule.pattern.text): rule.settings.compression_level for rule in topics},
            **{("compaction", "jobs", n): job.compression_level for n, job in enumerate(jobs)},
        }
        for path, level in levels.items():
            if level is not None:
                what = f"is a level of zstd, and segments are {self.format!r} with {codec!r}; take it out"
                yield dotted((*path, "compression_level")), what

    @property
    def cluster(self) -> KafkaSettings:
        """The cluster. Raises ConfigError when the configuration has none."""
        if self.kafka is None:
            raise ConfigError([": ".join(NO_KAFKA)], source=self.source)
        return self.kafka

    def without(self, section: str, advice: str) -> ConfigError:
        """The error of a command that needs a section which is not there. `advice`: for a file of one region."""
        return ConfigError([f"{section}: missing{self.absent.get(section, advice)}"], source=self.source)

    @property
    def own_topics(self) -> frozenset[str]:
        """The internal topics that this configuration names: never replicated."""
        if self.ingress is None:
            return frozenset()
        return self.ingress.own_topics

    @property
    def own_groups(self) -> frozenset[str]:
        """The consumer groups of this configuration: never replicated."""
        return frozenset(section.group_id for section in (self.egress, self.ingress) if section is not None)
