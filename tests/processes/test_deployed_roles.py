"""The flow on what the CloudFormation templates make: each process under its own role, with IAM in force; and without
one of the actions of that role."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.infra.deploy.on_moto import deploy, put_policy
from tests.infra.deploy.template import Template
from tests.infra.enforced_aws import ACCOUNT, EnforcedAws, enforced_aws
from tests.processes.flow import Flow
from tests.processes.harness import A, B
from tests.processes.traffic import EPOCH_MS, Draft

if TYPE_CHECKING:
    from tests.processes.harness import Site, Worker

pytestmark = [pytest.mark.integration, pytest.mark.long]

PATIENCE, COMMAND = timedelta(seconds=120), timedelta(minutes=6)
REGION, EXTERNAL_ID = "us-east-1", "kept-secret"
OURS, THEIRS = "ours", "theirs"
TRUST = {"TrustedServices": "", "TrustedPrincipals": f"arn:aws:iam::{ACCOUNT}:user/base", "ExternalId": EXTERNAL_ID}
TARGET = Template("target-region", {"BucketName": THEIRS, "ArchiveRegion": B, "SourceRegion": A, **TRUST}, stack="b")
SOURCE = Template(
    "source-region",
    {"BucketName": OURS, "ArchiveRegion": A, "ReplicaBucketName": THEIRS, "ReplicateWith": "sync", **TRUST},
    stack="a",
)
COMPACTION = Template("compaction", {"BucketName": OURS, "ArchiveRegion": A, **TRUST}, stack="compaction")


class Deployed:
    """A site whose processes have the roles of the stacks, and nothing else."""

    def __init__(self, site: Site, aws: EnforcedAws) -> None:
        self.site, self.aws = site, aws
        for template in (TARGET, SOURCE, COMPACTION):
            deploy(aws, template)
        keys = aws.user("base", {"Effect": "Allow", "Action": "sts:AssumeRole", "Resource": "*"})
        self._key = keys.access_key_id
        site.environment.update({"BASE_SECRET": keys.secret_access_key or "", "AWS_ENDPOINT_URL_STS": aws.endpoint_url})
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            site.environment.pop(name)
        aws.enforce()

    def credentials(self, template: Template, role: str) -> Mapping[str, Any]:
        return {
            "endpoint_url": self.aws.endpoint_url,
            "region_name": REGION,
            "access_key_id": self._key,
            "secret_access_key": "${BASE_SECRET}",
            "role_arn": f"arn:aws:iam::{ACCOUNT}:role/{template.properties(role)['RoleName']}",
            "external_id": EXTERNAL_ID,
        }

    def bucket(self, name: str, template: Template, role: str) -> Mapping[str, Any]:
        return {"bucket": name, "prefix": "data", **self.credentials(template, role)}

    def run(self, name: str, like: Worker, s3: Mapping[str, Any], *command: str) -> tuple[int | None, str]:
        worker = self.site.command(name, like, *command)
        worker.tables = {**like.tables, "s3": s3}
        worker.start()
        return worker.wait(COMMAND), worker.log.read_text(encoding="utf-8")

    @contextmanager
    def without(self, template: Template, role: str, action: str) -> Iterator[None]:
        """The role without one of its actions, until the end of the block."""
        properties = template.properties(role)
        (policy,) = properties["Policies"]
        statements = policy["PolicyDocument"]["Statement"]
        left = [{**one, "Action": [each for each in one["Action"] if each != action]} for one in statements]
        assert left != statements, f"{role} has no {action}"
        self._put(properties["RoleName"], [one for one in left if one["Action"]], policy["PolicyName"])
        try:
            yield
        finally:
            self._put(properties["RoleName"], statements, policy["PolicyName"])

    def _put(self, role: str, statements: Any, name: str) -> None:
        with self.aws.relaxed():
            put_policy(self.aws, role, statements, name)

    def await_cause(self, worker: Worker, action: str) -> None:
        """Until its log or `/readyz` says what to allow."""
        start = worker.log.stat().st_size

        def is_named() -> bool:
            logged = worker.log.read_bytes()[start:].decode(errors="replace")
            return f"allow {action}" in logged or f"allow {action}" in json.dumps(worker.readiness())

        self.site.wait(f"{worker.name} names {action}", is_named, PATIENCE)


@pytest.fixture
def deployed(site: Site, tmp_path: Path) -> Iterator[Deployed]:
    with enforced_aws(tmp_path) as aws:
        yield Deployed(site, aws)
        for worker in site.workers:
            worker.end()


def drafts(start: int, count: int) -> list[Draft]:
    return [Draft(n % 2, b"k", b"%d" % n, (), EPOCH_MS + n) for n in range(start, start + count)]


def services(deployed: Deployed, flow: Flow) -> tuple[Worker, Worker, Worker]:
    """egress, sync and ingress."""
    site = deployed.site
    egress = site.egress("egress", {flow.topic: {}}, s3=deployed.bucket(OURS, SOURCE, "EgressRole"))
    sync = site.sync("sync", THEIRS)
    there = deployed.bucket(THEIRS, SOURCE, "SyncRole")
    sync.tables = {
        **sync.tables,
        "s3": deployed.bucket(OURS, SOURCE, "SyncRole"),
        "sync": {**sync.tables["sync"], "destination": there},
    }
    ingress = site.ingress("ingress", {"topic": flow.topic})
    queue = {"queue": f"{THEIRS}-events", "wait": "1s", **deployed.credentials(TARGET, "IngressRole")}
    ingress.tables = {**ingress.tables, "s3": deployed.bucket(THEIRS, TARGET, "IngressRole"), "sqs": queue}
    return egress, sync, ingress


def test_the_flow_under_the_roles_of_the_templates(deployed: Deployed) -> None:
    site = deployed.site
    with Flow(site, partitions=2) as flow:
        egress, sync, ingress = (worker.start() for worker in services(deployed, flow))
        flow.wait_for(flow.produce(drafts(0, 300)), PATIENCE)
        flow.wait_for(flow.produce(drafts(300, 300)), PATIENCE)

        sent = 600
        for worker, template, role, action in (
            (egress, SOURCE, "EgressRole", "s3:PutObject"),
            (sync, SOURCE, "SyncRole", "s3:GetObject"),
            (sync, SOURCE, "SyncRole", "s3:PutObject"),
            (ingress, TARGET, "IngressRole", "s3:GetObject"),
            (ingress, TARGET, "IngressRole", "sqs:ReceiveMessage"),
            (ingress, TARGET, "IngressRole", "sqs:DeleteMessage"),
        ):
            with deployed.without(template, role, action):
                words = flow.produce(drafts(sent, 100))
                deployed.await_cause(worker, action)
            flow.wait_for(words, PATIENCE)
            sent += 100

        commands: tuple[tuple[str, Worker, Template, str, tuple[str, ...], tuple[str, ...]], ...] = (
            ("status", egress, SOURCE, "StatusRole", ("s3:ListBucket", "s3:GetObject"), ("status",)),
            ("verify", egress, COMPACTION, "VerifyRole", ("s3:ListBucket", "s3:GetObject"), ("verify",)),
            ("gc", site.gc("gc-like"), COMPACTION, "GcRole", ("s3:ListBucket", "s3:PutObject"), ("gc", "--covered")),
            (
                *("compact", site.compaction("compact-like"), COMPACTION, "CompactRole"),
                ("s3:ListBucket", "s3:GetObject", "s3:PutObject", "s3:DeleteObject"),
                ("compact", "--once"),
            ),
        )
        for name, like, template, role, actions, command in commands:
            s3 = deployed.bucket(OURS, template, role)
            for action in actions:
                with deployed.without(template, role, action):
                    code, text = deployed.run(f"{name}-without-{action.partition(':')[2]}", like, s3, *command)
                assert code in (1, 3), text
                assert f"allow {action}" in text
            code, text = deployed.run(name, like, s3, *command)
            assert code == 0, text
        flow.wait_for(flow.produce(drafts(sent, 100)), PATIENCE)
        site.stop(egress, sync, ingress)
        flow.judge_target(rewinds=0)
