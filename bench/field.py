"""This commit beside an earlier one, the floors and the sizes: `make bench-field` writes docs/benchmarks.md.

    python -m bench.field                              all rows, against moto, versitygw and a folder
    python -m bench.field --data json --only egress --server moto --records 200000

Every row runs both versions in turns in each round: `bench.field_flows` and `bench.field_merge` say how.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path

from bench.__main__ import commit_of_tree, machine, software
from bench.child import ROOT, ChildFailed
from bench.earlier import HERE, Contender, earlier
from bench.field_flows import FieldFlows
from bench.field_merge import merge_row
from bench.field_plan import COUNTS, PROGRAMS, FieldPlan
from bench.field_report import FieldRow, FieldRun, not_compared, page, regressions, table
from bench.field_suite import FieldSuite
from bench.resources import BenchResources
from bench.server_log import ServerLog, VersityLog
from infra.contracts.storage import ObjectStore
from infra.local.aws import s3_client
from infra.local.coordinators import wait_for_coordinators
from infra.local.errors import LocalStackError
from infra.local.stack import LocalStack
from infra.local.versitygw import VersityGateway
from infra.runtime.java import JavaMissing
from infra.storage.memory_and_folder import DirectoryObjectStore
from infra.storage.s3 import S3ObjectStore

DOCS = ROOT / "docs"
EARLIER = "548321f"


def main(arguments: Sequence[str] | None = None) -> int:
    """0; 1 after a failure; 3 when a ratio is worse than in the run that the page shows."""
    options = _options().parse_args(arguments)
    file = DOCS / "benchmarks.json"
    if options.render:
        run = FieldRun.from_json(file.read_text(encoding="utf-8"))
    else:
        try:
            run = measure(options)
        except (ChildFailed, JavaMissing, LocalStackError) as error:
            print(error, file=sys.stderr)
            return 1
    print("", *table(run), sep="\n")
    worse, left_out = [], []
    if file.exists() and not options.render:
        before = FieldRun.from_json(file.read_text(encoding="utf-8"))
        worse, left_out = regressions(before, run), not_compared(before, run)
    print("", *left_out, *worse, sep="\n")
    if options.output is not None:
        options.output.mkdir(parents=True, exist_ok=True)
        (options.output / "benchmarks.json").write_text(run.as_json(), encoding="utf-8")
        (options.output / "benchmarks.md").write_text(page(run), encoding="utf-8")
    return 3 if worse else 0


def measure(options: argparse.Namespace) -> FieldRun:
    """Raises ChildFailed, LocalStackError."""
    default = FieldPlan()
    plan = FieldPlan(
        rounds=options.rounds,
        share=options.records / COUNTS["json"],
        servers=tuple(options.server or default.servers),
        data=tuple(options.data or default.data),
        partitions=tuple(options.partitions or default.partitions),
        only=tuple(options.only or default.only),
    )
    commit, is_clean = commit_of_tree()
    began = time.monotonic()
    contenders = (HERE, *([] if options.alone else [earlier(EARLIER)]))
    measured = [row for server in plan.servers for row in _of_server(plan, server, contenders)]
    return FieldRun(
        commit=commit,
        is_clean=is_clean,
        when=f"{datetime.now(UTC):%Y-%m-%d %H:%M}",
        minutes=(time.monotonic() - began) / 60,
        machine=machine(),
        software=software(),
        command=f"python -m bench.field {' '.join(sys.argv[1:])}".strip(),
        contenders=[one.name for one in contenders],
        rows=measured,
    )


def _of_server(plan: FieldPlan, server: str, contenders: tuple[Contender, ...]) -> list[FieldRow]:
    with suite(plan, server, contenders) as opened:
        return list(rows(opened))


def rows(opened: FieldSuite) -> Iterator[FieldRow]:
    """What its plan has for its server, as they are measured. Raises ChildFailed."""
    for kind, partitions, programs in opened.plan.rows(opened.server):
        if programs == ["merge"]:
            yield merge_row(opened, kind)
        else:
            yield from FieldFlows(opened).rows(kind, partitions, programs)


@contextmanager
def suite(plan: FieldPlan, server: str, contenders: tuple[Contender, ...]) -> Iterator[FieldSuite]:
    """With a broker, an S3 server and a folder of its own."""
    with ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="replicator-field-")))
        stack = opened.enter_context(LocalStack(regions=("a",), java_options=("-Xmx1g",)))
        log: ServerLog | VersityLog = ServerLog(stack.log_dir / "moto.log")
        url = stack.moto.endpoint_url
        if server == "versitygw":
            (folder / "s3").mkdir()
            gateway = opened.enter_context(VersityGateway(folder / "s3"))
            url, log = gateway.endpoint_url, VersityLog(gateway.access_log)
        place = BenchResources(
            bootstrap=stack.brokers["a"].bootstrap, endpoint_url=url, run="field", queue_url=stack.moto.endpoint_url
        )
        place.prepare()
        wait_for_coordinators(place.bootstrap, "field.first")
        objects: ObjectStore = S3ObjectStore(s3_client(url), place.bucket)
        if server == "folder":
            (folder / "objects").mkdir()
            objects = DirectoryObjectStore(folder / "objects")
        yield FieldSuite(place, plan, server, contenders, folder, objects, log)


def _options() -> argparse.ArgumentParser:
    default = FieldPlan()
    parser = argparse.ArgumentParser(prog="python -m bench.field", description=__doc__.partition("\n")[0])
    add = parser.add_argument
    add("--records", type=int, default=COUNTS["json"], help="of 1 kB JSON; the other kinds in proportion")
    add("--rounds", type=int, default=default.rounds)
    add("--server", action="append", choices=default.servers)
    add("--data", action="append", choices=default.data)
    add("--partitions", type=int, action="append", choices=default.partitions)
    add("--only", action="append", choices=PROGRAMS)
    add("--alone", action="store_true", help=f"without {EARLIER} beside it")
    add("--output", type=Path, help="folder for benchmarks.json and benchmarks.md, such as docs; default: none")
    add("--render", action="store_true", help="only generate the page from benchmarks.json again")
    return parser


if __name__ == "__main__":
    sys.exit(main())
