"""Two regions under the names that the pages use, and an operator's desk: the files, and a shell in which a page runs.

us-east-1: orders ──egress──> bucket ──> queue ──ingress──> eu-west-1: us.orders
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from infra.contracts.cluster import TopicPartition
from infra.local.aws import REGION, create_bucket_with_queue
from tests.docs.operator_tools import install
from tests.docs.runbooks import RUNBOOKS, Book
from tests.infra.cluster import Cluster
from tests.processes.flow import Flow
from tests.processes.harness import A, B, Site, Worker, to_toml, total
from tests.processes.traffic import EPOCH_MS, Draft, produce_all

if TYPE_CHECKING:
    from collections.abc import Callable

SOURCE, TARGET = "us-east-1", "eu-west-1"
ARN = f"arn:aws:sqs:{REGION}:123456789012"  # of queues of the embedded SQS
PATIENCE = timedelta(minutes=5)  # commands of a page are processes, on the same cores as the services
QUICK = {"heartbeat_interval": "1s", "watermark_interval": "1s"}


def shell_environment(site: Site) -> Mapping[str, str]:
    """Of an operator: our command, those of Kafka and AWS, and the embedded S3 and SQS."""
    install(site.folder / "bin")
    path = os.pathsep.join([str(site.folder / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]])
    kept = {name: value for name, value in site.environment.items() if not name.startswith("REPLICATOR_")}
    return {**kept, "PATH": path, "AWS_ENDPOINT_URL": site.stack.moto.endpoint_url, "COLUMNS": "400"}


class Desk:
    """A context manager. `partitions` of the topic; `copied`: the target has a bucket of its own, which sync fills."""

    def __init__(
        self,
        site: Site,
        page: str | Path,
        *,
        partitions: int = 2,
        copied: bool = False,
        topic: Mapping[str, Any] | None = None,
        egress: Mapping[str, Any] | None = None,
        source: Mapping[str, Any] | None = None,
        ingress: Mapping[str, Any] | None = None,
        kafka: Mapping[str, Mapping[str, Any]] | None = None,
        tables: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        """`topic`, `egress`, `source`, `ingress`: settings over those of a test; `kafka`, `tables`: by region."""
        self.site = site
        self.flow = Flow(site, "orders", partitions=partitions)
        self.flow.target = f"us.{self.flow.topic}"
        self.bucket, self.queue = site.bucket, site.queue
        self.queue_url = site.queue_url
        if copied:
            self.bucket, self.queue = f"{site.name}-copy", f"{site.name}-copy-queue"
            self.queue_url = create_bucket_with_queue(site.stack.moto.endpoint_url, self.bucket, self.queue)
        kafka = kafka or {}
        self.egress = self._named(
            site.egress(
                SOURCE, {self.flow.topic: dict(topic or {})}, kafka=kafka.get(SOURCE), **{**QUICK, **(egress or {})}
            ),
            SOURCE,
            tables,
        )
        if source and "replication_policy" in source:
            self.flow.target = f"{SOURCE}.{self.flow.topic}"
            named: Mapping[str, Any] = {}
        else:
            named = {"destination_topic": "us.{topic}"}
        delivered = {"region": SOURCE, "topic": self.flow.topic, **named, **(source or {})}
        self.ingress = self._named(
            site.ingress(
                TARGET, delivered, bucket=self.bucket, queue=self.queue, kafka=kafka.get(TARGET), **(ingress or {})
            ),
            TARGET,
            tables,
        )
        self.sync = self._named(site.sync("sync", self.bucket), SOURCE, None) if copied else None
        self.folder = site.folder / "desk"
        self.folder.mkdir()
        self.book = Book(
            page=RUNBOOKS / page if isinstance(page, str) else page,
            folder=self.folder,
            environment=shell_environment(site),
            names={
                "orders": self.flow.topic,
                "segments-us-east-1": site.bucket,
                "segments-eu-west-1": self.bucket,
                "segments-eu-west-1-events": self.queue,
                f"arn:aws:sqs:{TARGET}:123456789012:segments-eu-west-1-events": f"{ARN}:{self.queue}",
                "https://sqs.eu-west-1.amazonaws.com/123456789012/segments-eu-west-1-events": self.queue_url,
                "kafka.us-east-1:9092": site.bootstrap(A),
                "kafka.eu-west-1:9092": site.bootstrap(B),
                "replicator.ingress": site.ingress_group,
                "replicator.egress": site.egress_group,
                "replicator.checkpoint": f"{site.name}.checkpoints",
            },
        )
        self.files()

    def __enter__(self) -> Self:
        self.flow.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.flow.__exit__()
        if kind is None:
            assert self.book.left() == set(), "sections of the page that no test plays"

    def _named(self, worker: Worker, region: str, tables: Mapping[str, Mapping[str, Any]] | None) -> Worker:
        worker.tables = {**worker.tables, "region": region, **(tables or {}).get(region, {})}
        return worker

    def files(self) -> None:
        """As the services have them, without what a test needs."""
        for worker, region in ((self.egress, SOURCE), (self.ingress, TARGET)):
            (self.folder / f"{region}.toml").write_text(to_toml(worker.tables), encoding="utf-8")

    def change(self, worker: Worker, section: str, **settings: Any) -> None:
        """An editor's change of a file, of the service and on the desk."""
        tables = {**worker.tables, section: {**worker.tables[section], **settings}}
        worker.write(tables)
        self.files()

    def play(self, heading: str) -> str:
        """With the addresses at which the services are now."""
        for name, worker in (("egress.us-east-1:9464", self.egress), ("ingress.eu-west-1:9464", self.ingress)):
            if worker.expected:
                self.wait("an answer", lambda one=worker: bool(one.readiness()))  # type: ignore[misc]
                host, port = worker.address
                self.book.names[name] = f"{host}:{port}"
        return self.book.play(heading)

    # --- records

    def drafts(self, count: int, *, first: int = 0) -> list[Draft]:
        """So many for each partition, the same ones each time."""
        return [
            Draft(partition, b"customer-%d" % (n % 10), b"order %d" % n, (), EPOCH_MS + n)
            for partition in range(self.flow.partitions)
            for n in range(first, first + count)
        ]

    def produce(self, count: int, *, first: int = 0) -> None:
        produce_all(self.site.bootstrap(A), self.flow.topic, self.drafts(count, first=first))

    def archived(self) -> bool:
        """Whether the source's bucket has all that the source has."""
        ends = self.flow.ends()
        return all(self._end(partition) >= end for partition, end in ends.items())

    def _end(self, partition: int) -> int:
        prefix = f"data/{SOURCE}/{self.flow.topic}/{partition}/"
        found = [int(key.rpartition("-")[2]) + 1 for key in self.site.keys() if key.startswith(prefix)]  # noqa: SIM118
        return max(found, default=0)

    def lag(self) -> int:
        """What the target says that it is behind."""
        return int(total([self.ingress], "source_lag_records"))

    def value_at(self, region: str, topic: str, offset: int) -> bytes | None:
        """Of partition 0: the record at this offset, or the next one."""
        found = Cluster(self.site.stack.brokers[region]).messages(TopicPartition(topic, 0))
        return next(message.value() for message in found if (message.offset() or 0) >= offset)

    def wait(self, what: str, check: Callable[[], bool]) -> None:
        self.site.wait(what, check, PATIENCE)

    def wait_for_delivery(self, count: int) -> None:
        self.wait(f"{count} records in {self.flow.target}", lambda: self.flow.delivered() >= count)
