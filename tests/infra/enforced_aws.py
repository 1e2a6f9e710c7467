"""AWS with IAM in force: a moto server of its own, whose requests are judged by the policies of their keys.

with enforced_aws(folder) as aws:
    aws.admin("iam").create_user(...)      # while the policies are not in force
    aws.enforce()                          # from here on each request needs an action that a policy allows
"""

from __future__ import annotations

import json
import threading
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import boto3

from infra.local.aws import CREDENTIALS, local_config
from infra.local.moto import Moto
from infra.local.process import Supervisor
from infra.storage.aws import AwsCredentials

ACCOUNT = "123456789012"  # moto's
Statement = Mapping[str, Any]

# Where moto asks for another right than AWS. What stands here is not proved by a test on moto.
HEAD_BUCKET = "s3:HeadBucket"  # of AWS: s3:ListBucket
ON_BUCKET = "s3:DeleteObject"  # of AWS: on the object; moto asks for it on the bucket when several are deleted
BY_NAME = "sqs:GetQueueUrl"  # of AWS: on the queue; moto knows only the queue of a URL


def as_moto_asks(statement: Statement) -> Sequence[Statement]:
    """The statement with what moto asks for besides."""
    actions, resources = listed(statement["Action"]), listed(statement["Resource"])
    found = [{**statement, "Action": actions, "Resource": resources}]
    if "s3:ListBucket" in actions:
        found.append({**statement, "Action": [HEAD_BUCKET], "Resource": resources})
    if ON_BUCKET in actions:
        buckets = [one.partition("/")[0] for one in resources]
        found.append({**statement, "Action": [ON_BUCKET], "Resource": buckets})
    if BY_NAME in actions:
        found.append({**statement, "Action": [BY_NAME], "Resource": "*"})
    return found


def listed(value: str | Sequence[str]) -> Sequence[str]:
    return [value] if isinstance(value, str) else list(value)


@dataclass
class EnforcedAws:
    endpoint_url: str
    _clients: dict[tuple[str, str], Any] = field(default_factory=dict)

    def admin(self, service: str, region: str = CREDENTIALS["region_name"]) -> Any:
        """A client that may do everything, while the policies are not in force."""
        if (service, region) not in self._clients:
            keys = {**CREDENTIALS, "region_name": region}
            self._clients[service, region] = boto3.client(
                service,  # type: ignore[call-overload]
                endpoint_url=self.endpoint_url,
                config=local_config(),
                **keys,
            )
        return self._clients[service, region]

    def enforce(self) -> None:
        self._judge_after(0)

    def relax(self) -> None:
        self._judge_after(float("inf"))

    @contextmanager
    def relaxed(self) -> Iterator[None]:
        self.relax()
        try:
            yield
        finally:
            self.enforce()

    def _judge_after(self, requests: float) -> None:
        url = f"{self.endpoint_url}/moto-api/reset-auth"
        head = {"Content-Type": "text/plain"}  # a form would be parsed
        with urllib.request.urlopen(urllib.request.Request(url, data=str(requests).encode(), headers=head)):
            pass

    def user(self, name: str, *statements: Statement) -> AwsCredentials:
        """The keys of a new user who may do what the statements allow."""
        iam = self.admin("iam")
        iam.create_user(UserName=name)
        asked = [part for one in statements for part in as_moto_asks(one)]
        document = json.dumps({"Version": "2012-10-17", "Statement": asked})
        iam.put_user_policy(UserName=name, PolicyName="rights", PolicyDocument=document)
        key = iam.create_access_key(UserName=name)["AccessKey"]
        return AwsCredentials(access_key_id=key["AccessKeyId"], secret_access_key=key["SecretAccessKey"])

    def close(self) -> None:
        for client in self._clients.values():
            client.close()


@contextmanager
def enforced_aws(folder: Path) -> Iterator[EnforcedAws]:
    owner = Supervisor(log=folder / "supervisor.log")
    moto = Moto(folder=folder / "moto", log=folder / "moto.log", owner=owner, abort=threading.Event())
    try:
        moto.start()
        aws = EnforcedAws(moto.endpoint_url)
        try:
            yield aws
        finally:
            aws.close()
    finally:
        owner.close()
