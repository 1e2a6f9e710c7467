"""The embedded stack: one Kafka broker or one cluster per region, with S3 and SQS.

LocalStack ──pipe──> supervisor ──> broker-a, broker-b, moto
    │                    └ ends them and removes a temporary folder, however this process ends
    └ <dir>/logs/{broker-a,broker-b,moto,supervisor}.log
      <dir>/broker-a/{server.properties,data}
      <dir>/cluster-c/{controller,broker-1,broker-2,broker-3}/…
"""

from __future__ import annotations

import re
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from datetime import timedelta
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Self

from infra.local.broker import Broker, Listener
from infra.local.cache import cache_dir, keep_copy
from infra.local.class_sharing import class_archive
from infra.local.cluster import BrokerCluster
from infra.local.data_folder import READ_BY_FORMAT
from infra.local.errors import LocalStackError
from infra.local.jars import KAFKA_VERSION, kafka_jars
from infra.local.kafka_process import KafkaRuntime
from infra.local.moto import Moto
from infra.local.process import Supervisor
from infra.runtime.java import find_java

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

    from infra.local.identity import ProcessIdentity
    from infra.local.process import Process

_REGION = re.compile(r"[a-z0-9][a-z0-9-]*")


class LocalStack:
    """A context manager: all servers answer within the block, and none is left after it."""

    def __init__(
        self,
        regions: tuple[str, ...] = ("a", "b"),
        dir: Path | None = None,  # noqa: A002 - the name of the command line option
        broker_config: Mapping[str, str] = MappingProxyType({}),
        kafka_version: str = KAFKA_VERSION,
        *,
        keep_dir: bool | None = None,
        java_options: tuple[str, ...] = (),
        proxy_ports: Mapping[str, tuple[int, int]] = MappingProxyType({}),
        secured: bool = False,
        listeners: Sequence[Listener] = (),
        clusters: tuple[str, ...] = (),
    ) -> None:
        """`dir`: folder for data and logs; None: a new folder that is removed at the end.

        `keep_dir`: whether `dir` outlives the stack; by default if it was given. A kept folder may be used again: the
        brokers find their data, on other ports; moto is empty. `broker_config`: properties of every broker.
        `java_options`: those of every broker, such as "-Xmx2g". `proxy_ports`: ports of a region's proxy, `secured`: a
        listener with ACLs for every broker, `listeners`: further ones; see Broker. `clusters`: further regions, with
        several brokers each.
        """
        every = (*regions, *clusters)
        if not every or len(set(every)) != len(every) or not all(_REGION.fullmatch(region) for region in every):
            raise ValueError(f"regions must be different words of a-z, 0-9 and '-': {every!r}")
        self._regions = regions
        self._replicated = clusters
        self._given_dir = dir
        self._keep_dir = keep_dir if keep_dir is not None else dir is not None
        self._config = dict(broker_config)
        self._kafka_version = kafka_version
        self._java_options = java_options
        self._proxy_ports = dict(proxy_ports)
        self._secured = secured
        self._listeners = tuple(listeners)
        self._abort = threading.Event()
        self._dir: Path | None = None
        self._owner: Supervisor | None = None
        self._brokers: dict[str, Broker] = {}
        self._clusters: dict[str, BrokerCluster] = {}
        self._moto: Moto | None = None
        self._started_in: timedelta | None = None

    @property
    def dir(self) -> Path:
        if self._dir is None:
            raise LocalStackError("the stack was not started: use it as a context manager")
        return self._dir

    @property
    def log_dir(self) -> Path:
        """One log per process."""
        return self.dir / "logs"

    @property
    def brokers(self) -> Mapping[str, Broker]:
        """Brokers by region, for regions with one broker."""
        if self._moto is None:
            raise LocalStackError("the stack was not started: use it as a context manager")
        return MappingProxyType(self._brokers)

    @property
    def clusters(self) -> Mapping[str, BrokerCluster]:
        """Clusters by region, for regions with several brokers."""
        if self._moto is None:
            raise LocalStackError("the stack was not started: use it as a context manager")
        return MappingProxyType(self._clusters)

    @property
    def moto(self) -> Moto:
        if self._moto is None:
            raise LocalStackError("the stack was not started: use it as a context manager")
        return self._moto

    @property
    def started_in(self) -> timedelta:
        """Time from the first process to the last answer, without the downloads of the first start on a machine."""
        if self._started_in is None:
            raise LocalStackError("the stack was not started: use it as a context manager")
        return self._started_in

    def identities(self) -> Mapping[str, ProcessIdentity]:
        """All processes by name, including "supervisor"."""
        return self._owner.identities() if self._owner else {}

    def pids(self) -> Mapping[str, int]:
        """All process ids by name, including "supervisor"."""
        return {name: identity.pid for name, identity in self.identities().items()}

    def check(self) -> None:
        """Raises LocalStackError, with the last lines of the log, if a process died that was not stopped."""
        for server in self._servers():
            server.check()

    def restore(self) -> None:
        """Thaw or start every server that was frozen, stopped or killed. A moto that was stopped is empty."""
        for server in self._servers():
            server.restore()

    def start(self, name: str, argv: Sequence[str], *, env: Mapping[str, str]) -> Process:
        """Run another program in the stack's folder, with a log like the others; it ends with the stack, or is detached
        with it."""
        return self._running_owner().start(name, argv, log=self.log_dir / f"{name}.log", cwd=self.dir, env=env)

    def add_broker(self, region: str) -> Broker:
        """Start another, empty broker; it answers clients when this returns. Raises LocalStackError."""
        if region in self._brokers:
            raise ValueError(f"there is a broker {region!r} already")
        broker = self._brokers[region] = self._broker(region, self._runtime())
        broker.start()
        return broker

    def keep_logs(self) -> Path:
        """Copy the logs to a folder of this stack in the user's cache folder, where those of the last few stay. Returns
        that folder."""
        return keep_copy(self.log_dir, cache_dir() / "failures" / self.dir.name)

    def detach(self) -> Mapping[str, ProcessIdentity]:
        """Let all processes outlive this one; a SIGTERM to the "supervisor" ends them. No call may follow."""
        owner = self._running_owner()
        identities = owner.identities()
        owner.detach()
        self._owner = None
        return identities

    def __enter__(self) -> Self:
        if self._owner is not None:
            raise LocalStackError("the stack runs already")
        runtime = self._runtime()
        self._abort.clear()
        started = False
        try:
            began = time.monotonic()
            self._open_dir()
            self._start_all(runtime)
            self._started_in = timedelta(seconds=time.monotonic() - began)
            started = True
        except LocalStackError as error:
            raise self._with_kept_logs(error) from error
        finally:
            if not started:
                self.close()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End every process and remove a temporary folder. May be called twice."""
        self._abort.set()
        if self._owner is not None:
            self._owner.close()
            self._owner = None

    def _servers(self) -> tuple[Broker | BrokerCluster | Moto, ...]:
        return (*self.brokers.values(), *self.clusters.values(), self.moto)

    def _runtime(self) -> KafkaRuntime:
        """Java and Kafka; fetches and prepares the parts that the cache folder does not have yet."""
        java = find_java()
        jars = kafka_jars(java, version=self._kafka_version)
        archive = class_archive(java, jars, version=self._kafka_version)
        formatted = cache_dir() / f"kafka-{self._kafka_version}.formatted"
        own = any(name.startswith(READ_BY_FORMAT) for name in self._config)
        return KafkaRuntime(java=java, jars=jars, shared_classes=archive, formatted=None if own else formatted)

    def _open_dir(self) -> None:
        """Create the folder, and start the supervisor that removes it."""
        self._dir = (
            self._given_dir.absolute() if self._given_dir else Path(tempfile.mkdtemp(prefix="replicator-local-"))
        )
        self.log_dir.mkdir(parents=True, exist_ok=True)
        remove = () if self._keep_dir else (self._dir,)
        self._owner = Supervisor(log=self.log_dir / "supervisor.log", remove=remove)

    def _start_all(self, runtime: KafkaRuntime) -> None:
        """Start all servers in parallel; the first failure ends the wait for the others."""
        owner = self._running_owner()
        self._brokers = {region: self._broker(region, runtime) for region in self._regions}
        self._clusters = {region: self._cluster(region, runtime) for region in self._replicated}
        self._moto = Moto(folder=self.dir / "moto", log=self.log_dir / "moto.log", owner=owner, abort=self._abort)
        servers = self._servers()
        with ThreadPoolExecutor(max_workers=len(servers), thread_name_prefix="local-stack") as pool:
            starts = [pool.submit(server.start) for server in servers]
            try:
                for start in as_completed(starts):
                    start.result()
            except BaseException:
                self._abort.set()
                raise

    def _broker(self, region: str, runtime: KafkaRuntime) -> Broker:
        return Broker(
            region=region,
            folder=self.dir / f"broker-{region}",
            log=self.log_dir / f"broker-{region}.log",
            runtime=runtime,
            owner=self._running_owner(),
            config=self._config,
            abort=self._abort,
            java_options=self._java_options,
            proxy_ports=self._proxy_ports.get(region),
            secured=self._secured,
            listeners=self._listeners,
        )

    def _cluster(self, region: str, runtime: KafkaRuntime) -> BrokerCluster:
        return BrokerCluster(
            region=region,
            folder=self.dir / f"cluster-{region}",
            log_dir=self.log_dir,
            runtime=runtime,
            owner=self._running_owner(),
            abort=self._abort,
            config=self._config,
            java_options=self._java_options,
        )

    def _running_owner(self) -> Supervisor:
        if self._owner is None:
            raise LocalStackError("the stack does not run: use it as a context manager")
        return self._owner

    def _with_kept_logs(self, error: LocalStackError) -> LocalStackError:
        """The same error, with the path of a copy of the logs if their folder is about to be removed."""
        if self._keep_dir or self._dir is None:
            return error
        return LocalStackError(str(error).replace(str(self.log_dir), str(self.keep_logs())))
