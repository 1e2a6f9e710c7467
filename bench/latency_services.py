"""Egress of one region and ingress of another as processes, with an S3 server and a queue between them: what
`bench.latency` and `bench.mm2_speed` measure."""

from __future__ import annotations

import http.client
import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from bench.child import ROOT, ChildFailed
from bench.server_log import ServerLog, VersityLog
from infra.local.aws import REGION, create_bucket_with_queue, s3_client
from infra.local.errors import LocalStackError
from infra.local.ports import free_ports, listens
from infra.local.process import Process
from infra.local.stack import LocalStack
from infra.local.versitygw import VersityGateway
from infra.local.waiting import wait_until
from replicator.config.show import to_toml
from replicator.demo.services import environment

SOURCE, TARGET, BUCKET, QUEUE, PREFIX = "a", "b", "latency", "latency-events", "data"
TOPICS = {SOURCE: "orders", TARGET: "orders.copy"}
READY = timedelta(seconds=60)
_TICKS = os.sysconf("SC_CLK_TCK")
_STAGE = re.compile(r'segment_stage_seconds_(sum|count)\{[^}]*stage="([a-z]+)"[^}]*\} (\S+)')


@dataclass(slots=True)
class LatencyStorage:
    """The S3 server and the queue: where they are, and how they are asked what they did."""

    endpoint_url: str
    queue_url: str
    pids: Mapping[str, int]
    log: ServerLog | VersityLog
    bridge_port: int | None  # None: moto's own queue, which measures nothing


@dataclass(slots=True)
class LatencyServices:
    processes: Mapping[str, Process]
    ports: Mapping[str, int]  # of /metrics

    def stages(self) -> dict[str, tuple[float, float]]:
        """Sum of seconds and number of segments, by stage."""
        found: dict[str, dict[str, float]] = {}
        for port in self.ports.values():
            for what, stage, value in _STAGE.findall(asked(port, "/metrics").decode()):
                of_stage = found.setdefault(stage, {"sum": 0.0, "count": 0.0})
                of_stage[what] += float(value)
        return {stage: (one["sum"], one["count"]) for stage, one in found.items()}

    def check(self) -> None:
        for name, process in self.processes.items():
            if (code := process.poll()) is not None:
                raise ChildFailed(f"{name} ended with {code}: {process.log.read_text(errors='replace')[-2000:]}")


@contextmanager
def storage_of(server: str, stack: LocalStack, folder: Path) -> Iterator[LatencyStorage]:
    if server == "moto":
        url = stack.moto.endpoint_url
        queue_url = create_bucket_with_queue(url, BUCKET, QUEUE, prefix=f"{PREFIX}/")
        pids = {"moto": stack.pids()["moto"]}
        yield LatencyStorage(url, queue_url, pids, ServerLog(stack.log_dir / "moto.log"), None)
        return
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "bench.queue_bridge", str(port)]
    bridge = stack.start("bridge", command, env={**environment(), "PYTHONPATH": str(ROOT)})
    if not wait_until(lambda: listens(port), READY):
        raise LocalStackError(f"the bridge does not listen: {bridge.log.read_text(errors='replace')[-2000:]}")
    (folder / "s3").mkdir()
    with VersityGateway(folder / "s3", webhook_url=f"http://127.0.0.1:{port}/events") as gateway:
        with closing(s3_client(gateway.endpoint_url)) as s3:
            s3.create_bucket(Bucket=BUCKET)
        pids = {"versitygw": gateway.pid, "bridge": bridge.pid}
        yield LatencyStorage(
            gateway.endpoint_url, f"http://127.0.0.1:{port}/{QUEUE}", pids, VersityLog(gateway.access_log), port
        )


def start_services(stack: LocalStack, storage: LatencyStorage, age: str) -> LatencyServices:
    aws = {"endpoint_url": storage.endpoint_url, "region_name": REGION}
    queue_endpoint = storage.queue_url.rpartition("/")[0] if storage.bridge_port is not None else storage.endpoint_url
    sections: Mapping[str, tuple[str, Mapping[str, Any]]] = {
        "egress": (SOURCE, {"egress": {"topics": {TOPICS[SOURCE]: {"max_segment_age": age}}}}),
        "ingress": (
            TARGET,
            {
                "sqs": {"queue": storage.queue_url, "endpoint_url": queue_endpoint, "region_name": REGION},
                "ingress": {
                    "replication_factor": 1,
                    "sources": [
                        {
                            "region": SOURCE,
                            "topic": TOPICS[SOURCE],
                            "destination_topic": TOPICS[TARGET],
                            "first_segment_delay": "0s",
                        }
                    ],
                },
            },
        ),
    }
    ports = dict(zip(sections, free_ports(len(sections)), strict=True))
    processes = {}
    for name, (region, tables) in sections.items():
        file = stack.dir / f"{name}.toml"
        content = {
            "region": region,
            "kafka": {"bootstrap.servers": stack.brokers[region].bootstrap},
            "s3": {"bucket": BUCKET, "prefix": PREFIX, **aws},
            "metrics": {"listen": f"127.0.0.1:{ports[name]}"},
            **tables,
        }
        file.write_text(to_toml(content), encoding="utf-8")
        command = [sys.executable, "-P", "-m", "replicator", name, "--config", str(file)]
        processes[name] = stack.start(name, command, env=environment())
    services = LatencyServices(processes, ports)
    for name, port in ports.items():

        def ready(port: int = port) -> bool:
            services.check()
            return listens(port)

        if not wait_until(ready, READY):
            raise ChildFailed(f"{name} is not ready: {processes[name].log.read_text(errors='replace')[-2000:]}")
    return services


def reader_properties(bootstrap: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": bootstrap,
        "group.id": "reader",
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "fetch.wait.max.ms": 10,  # how long the broker may keep an answer back: part of each age
        "log_level": 2,
    }


def asked(port: int, path: str) -> bytes:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("GET", path)
        return connection.getresponse().read()
    finally:
        connection.close()


def cpu_seconds(pid: int) -> float:
    """User and system time of a process of this machine."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def peak_rss_mib(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 1024
