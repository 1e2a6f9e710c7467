"""The Helm chart names only what the program has, renders fields that Kubernetes knows, and refuses bad files."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import fields
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from egress.settings import EgressSettings
from infra.runtime import health_server
from infra.settings.units import format_duration
from replicator.config import parse
from replicator.config.reference import entries
from replicator.services.gathered import HEARING
from replicator.services.wiring import GRACE
from replicator.terminal.output import DIFFERENCES
from tests.infra.deploy.helm import CHART, ROOT, refusal, render, strict_reader
from tests.infra.deploy.images import DOCKERFILE, stages

TEMPLATES = "\n".join(path.read_text(encoding="utf-8") for path in sorted((CHART / "templates").iterdir()))
VALUES = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
REGION = (ROOT / "infra" / "deploy" / "us-east-1.toml").read_text(encoding="utf-8")
MEMBER = '\n[kafka.consumer]\n"group.instance.id" = "${POD_NAME}"\n'
CONFIG = REGION + MEMBER
ENCRYPTED = CONFIG + '\n[encryption]\nkey = "file"\nkey_file = "/etc/replicator-keys/keys.toml"\n'
FLOWS = """
[cluster_defaults.kafka]
"bootstrap.servers" = "kafka:9092"
[cluster_defaults.kafka.consumer]
"group.instance.id" = "${POD_NAME}"
[cluster_defaults.metrics]
listen = "0.0.0.0:9464"
[clusters.a.s3]
bucket = "a"
[clusters.b.s3]
bucket = "b"
[clusters.b.sqs]
queue = "b"
[clusters.b.ingress]
shutdown_timeout = "1m30s"
[flows."a->b"]
topics = ["orders"]
"""
ENDED = FLOWS + "[flow_defaults]\nenabled = false\n"
EGRESS_ONLY = REGION.partition("[sqs]")[0] + MEMBER + '[metrics]\nlisten = "0.0.0.0:9090"\n'
EVERYTHING = {
    "secret": "kafka",
    "serviceAccount": {"annotations": {"team": "streams", "eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/all"}},
    "imagePullSecrets": [{"name": "registry"}],
    "image": {"digest": "sha256:" + "0" * 64},
    "egress": {
        "serviceAccount": {"annotations": {"eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/egress"}},
        "env": [{"name": "AWS_REGION", "value": "us-east-1"}],
        "nodeSelector": {"kubernetes.io/arch": "amd64"},
        "tolerations": [{"key": "spot", "operator": "Exists"}],
        "topologySpreadConstraints": [
            {"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "ScheduleAnyway"}
        ],
    },
    "compaction": {
        "enabled": True,
        "serviceAccount": {"annotations": {"eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/compact"}},
        "sparkOnKubernetes": True,
        "activeDeadlineSeconds": 7200,
        "arguments": ["--job", "nightly"],
    },
    "podMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
}


class TestWhatItNames:
    def test_settings_exist(self) -> None:
        known = {entry.name for entry in entries()}
        assert set(re.findall(r"dig [^\n]*?\"(\w+_\w+)\"", TEMPLATES)) == {
            "spool_dir",
            "shutdown_timeout",
            "tls_cert",
            "key_file",
        }
        assert {"spool_dir", "shutdown_timeout", "tls_cert", "key_file", "listen"} <= known

    def test_defaults_that_it_repeats_are_the_programs(self) -> None:
        (default,) = (one.default for one in fields(EgressSettings) if one.name == "shutdown_timeout")
        assert isinstance(default, timedelta)
        assert f'"shutdown_timeout" "{format_duration(default)}"' in TEMPLATES
        assert timedelta(seconds=10) > GRACE + 2 * HEARING, "what the grace of a pod has beyond shutdown_timeout"

    def test_pages_of_the_probes_exist(self) -> None:
        asked = set(re.findall(r"path: (/\w+)", TEMPLATES))
        assert asked == {"/healthz", "/readyz", "/metrics"}
        for path in asked:
            assert f'case "{path}"' in Path(health_server.__file__).read_text(encoding="utf-8")

    def test_the_exit_code_that_no_retry_mends_is_the_programs(self) -> None:
        assert f"values: [{DIFFERENCES}]" in TEMPLATES

    def test_pods_run_as_the_user_of_the_image(self) -> None:
        base = stages(DOCKERFILE.read_text(encoding="utf-8"))["base"]
        (user,) = re.findall(r"runAsUser: (\d+)", TEMPLATES)
        assert base.all("USER") == [f"{user}:{user}"]

    def test_executors_of_the_page_have_the_account_of_its_release(self) -> None:
        page = (ROOT / "docs" / "deploy-kubernetes.md").read_text(encoding="utf-8")
        (release,) = re.findall(r"^helm install (\S+) infra/deploy/helm ", page, re.M)
        (account,) = re.findall(r'^"spark.kubernetes.authenticate.executor.serviceAccountName" = "(\S+)"', page, re.M)
        assert account == f"{release}-compaction-executor"

    def test_a_value_is_used_and_what_is_used_is_a_value(self) -> None:
        for name in VALUES:
            assert f"Values.{name}" in TEMPLATES or f'"{name}"' in TEMPLATES, name
        assert set(re.findall(r"\.Values\.(\w+)", TEMPLATES)) <= VALUES.keys()


def of_kind(objects: Sequence[Mapping[str, Any]], kind: str) -> Sequence[Mapping[str, Any]]:
    return [one for one in objects if one["kind"] == kind]


def pods(objects: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """Their specifications: of StatefulSets, and of the CronJob."""
    jobs = [one["spec"]["jobTemplate"] for one in of_kind(objects, "CronJob")]
    return [one["spec"]["template"]["spec"] for one in (*of_kind(objects, "StatefulSet"), *jobs)]


@pytest.mark.long
class TestRendered:
    """By Helm itself."""

    @pytest.mark.parametrize("values", [{}, EVERYTHING], ids=["defaults", "everything"])
    def test_kubernetes_knows_each_field(self, values: Mapping[str, Any], tmp_path: Path) -> None:
        objects = render(CONFIG, values=values, folder=tmp_path)
        builtin = [one for one in objects if one["kind"] != "PodMonitor"]
        done = subprocess.run(
            [strict_reader()], input=yaml.safe_dump_all(builtin), capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.split() == [one["kind"] for one in builtin]

    def test_a_field_that_kubernetes_does_not_know_is_noticed(self, tmp_path: Path) -> None:
        text = yaml.safe_dump_all(render(CONFIG, values={}, folder=tmp_path))
        planted = text.replace("readOnlyRootFilesystem", "readOnlyRootFileSystem")
        done = subprocess.run([strict_reader()], input=planted, capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert 'unknown field "spec.template.spec.containers[0].securityContext.readOnlyRootFileSystem"' in done.stderr

    def test_everything(self, tmp_path: Path) -> None:
        objects = render(CONFIG, values=EVERYTHING, folder=tmp_path)
        assert [f"{one['kind']} {one['metadata']['name']}" for one in objects if one["kind"] != "ServiceAccount"] == [
            *("PodDisruptionBudget site-egress", "PodDisruptionBudget site-ingress"),
            *("ConfigMap site", "Role site-compaction", "RoleBinding site-compaction"),
            *("Service site-egress", "Service site-ingress", "StatefulSet site-egress", "StatefulSet site-ingress"),
            *("CronJob site-compaction", "PodMonitor site-egress", "PodMonitor site-ingress"),
        ]

    def test_the_file_arrives_as_it_is(self, tmp_path: Path) -> None:
        (config,) = of_kind(render(CONFIG, values={}, folder=tmp_path), "ConfigMap")
        text = config["data"]["replicator.toml"]
        assert text == CONFIG
        parsed = parse(text, environment={"KAFKA_PASSWORD": "x", "POD_NAME": "site-egress-0"})
        assert parsed.kafka is not None
        assert parsed.kafka.consumer["group.instance.id"] == "site-egress-0"

    def test_a_pod_may_write_to_its_volumes_only(self, tmp_path: Path) -> None:
        for pod in pods(render(CONFIG, values=EVERYTHING, folder=tmp_path)):
            assert pod["securityContext"]["runAsNonRoot"] is True
            (container,) = pod["containers"]
            assert container["securityContext"]["readOnlyRootFilesystem"] is True
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
            writable = {one["mountPath"] for one in container["volumeMounts"] if not one.get("readOnly")}
            assert writable == {"/var/lib/replicator", "/tmp"}
            assert {one["name"] for one in pod["volumes"]} == {one["name"] for one in container["volumeMounts"]}

    def test_a_pod_is_a_member_under_its_own_name(self, tmp_path: Path) -> None:
        for pod in pods(render(CONFIG, values=EVERYTHING, folder=tmp_path)):
            (container,) = pod["containers"]
            (name,) = (one for one in container["env"] if one["name"] == "POD_NAME")
            assert name["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.name"
            assert container["envFrom"] == [{"secretRef": {"name": "kafka"}}]

    def test_probes_and_prometheus_ask_at_the_port_of_the_file(self, tmp_path: Path) -> None:
        objects = render(CONFIG, values=EVERYTHING, folder=tmp_path)
        listen = parse(CONFIG, environment={"KAFKA_PASSWORD": "x", "POD_NAME": "x"}).metrics.listen
        for one in of_kind(objects, "StatefulSet"):
            (container,) = one["spec"]["template"]["spec"]["containers"]
            assert [f"0.0.0.0:{port['containerPort']}" for port in container["ports"]] == [listen]
            assert {container[f"{kind}Probe"]["httpGet"]["port"] for kind in ("startup", "liveness", "readiness")} == {
                "metrics"
            }
        for one in of_kind(objects, "PodMonitor"):
            assert one["apiVersion"] == "monitoring.coreos.com/v1"
            (endpoint,) = one["spec"]["podMetricsEndpoints"]
            assert endpoint == {"port": "metrics", "path": "/metrics", "scheme": "http", "interval": "30s"}

    def test_probes_and_prometheus_ask_over_tls_if_the_file_has_a_certificate(self, tmp_path: Path) -> None:
        folder = "/etc/replicator-files"
        secured = f'listen = "0.0.0.0:9090"\ntls_cert = "{folder}/tls.crt"\ntls_key = "{folder}/tls.key"'
        config = CONFIG.replace('listen = "0.0.0.0:9090"', secured)
        assert config != CONFIG
        login = {"basicAuth": {"username": {"name": "login", "key": "username"}}}
        values = {**EVERYTHING, "files": "certificates", "podMonitor": {"enabled": True, "endpoint": login}}
        objects = render(config, values=values, folder=tmp_path)
        for one in of_kind(objects, "StatefulSet"):
            pod = one["spec"]["template"]["spec"]
            (container,) = pod["containers"]
            probes = [container[f"{kind}Probe"]["httpGet"] for kind in ("startup", "liveness", "readiness")]
            assert {probe["scheme"] for probe in probes} == {"HTTPS"}
            assert {"name": "files", "mountPath": folder, "readOnly": True} in container["volumeMounts"]
            assert {"name": "files", "secret": {"secretName": "certificates", "defaultMode": 0o440}} in pod["volumes"]
        for one in of_kind(objects, "PodMonitor"):
            (endpoint,) = one["spec"]["podMetricsEndpoints"]
            assert endpoint["scheme"] == "https"
            assert endpoint["basicAuth"] == login["basicAuth"]

    def test_every_pod_has_the_key_file_of_the_archive(self, tmp_path: Path) -> None:
        """As a folder: a key that is added to the Secret arrives without a restart, which a mounted file does not."""
        file = parse(ENCRYPTED, environment={"KAFKA_PASSWORD": "x", "POD_NAME": "x"}).encryption
        assert file is not None
        assert file.key_file is not None
        values = {**EVERYTHING, "encryptionKeys": "archive-keys"}
        found = pods(render(ENCRYPTED, values=values, folder=tmp_path))
        assert len(found) == 3
        for pod in found:
            (container,) = pod["containers"]
            mount = {"name": "keys", "mountPath": str(file.key_file.parent), "readOnly": True}
            assert mount in container["volumeMounts"]
            assert {"name": "keys", "secret": {"secretName": "archive-keys", "defaultMode": 0o440}} in pod["volumes"]

    def test_what_watches_and_guards_a_set_finds_its_pods(self, tmp_path: Path) -> None:
        objects = render(CONFIG, values=EVERYTHING, folder=tmp_path)
        for one in of_kind(objects, "StatefulSet"):
            labels = one["spec"]["template"]["metadata"]["labels"]
            name = one["metadata"]["name"]
            for kind in ("PodDisruptionBudget", "PodMonitor", "Service"):
                (other,) = (found for found in of_kind(objects, kind) if found["metadata"]["name"] == name)
                selector = other["spec"]["selector"]
                wanted = selector if kind == "Service" else selector["matchLabels"]
                assert wanted.items() <= labels.items()
                assert wanted["app.kubernetes.io/component"] == name.removeprefix("site-")

    def test_compaction_runs_once_by_its_own_schedule(self, tmp_path: Path) -> None:
        (job,) = of_kind(render(CONFIG, values=EVERYTHING, folder=tmp_path), "CronJob")
        assert (job["spec"]["schedule"], job["spec"]["concurrencyPolicy"]) == ("0 1 * * *", "Forbid")
        pod = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
        assert pod["containers"][0]["args"] == ["compact", "--once", "--job", "nightly"]
        assert pod["containers"][0]["image"] == "kafka-segment-replicator:0.1.0-spark"
        assert (pod["serviceAccountName"], pod["automountServiceAccountToken"]) == ("site-compaction", True)

    def test_each_component_has_an_account_with_its_own_role_of_aws(self, tmp_path: Path) -> None:
        """Executors have one that may not create pods."""
        objects = render(CONFIG, values=EVERYTHING, folder=tmp_path)
        accounts = {
            one["metadata"]["name"]: one["metadata"]["annotations"] for one in of_kind(objects, "ServiceAccount")
        }
        roles = {name: annotations["eks.amazonaws.com/role-arn"] for name, annotations in accounts.items()}
        role = "arn:aws:iam::1:role/"
        assert roles == {
            "site-egress": f"{role}egress",
            "site-ingress": f"{role}all",
            "site-compaction": f"{role}compact",
            "site-compaction-executor": f"{role}compact",
        }
        assert {annotations["team"] for annotations in accounts.values()} == {"streams"}
        sets = {one["metadata"]["name"]: one["spec"]["template"]["spec"] for one in of_kind(objects, "StatefulSet")}
        assert {name: pod["serviceAccountName"] for name, pod in sets.items()} == {
            "site-egress": "site-egress",
            "site-ingress": "site-ingress",
        }
        (binding,) = of_kind(objects, "RoleBinding")
        assert [one["name"] for one in binding["subjects"]] == ["site-compaction"]

    def test_a_pod_has_time_to_end(self, tmp_path: Path) -> None:
        """Of a file of several regions, whose clusters may say otherwise than the defaults of all."""
        for region, other, seconds in (("a", "ingress", 20), ("b", "egress", 100)):
            values = {"region": region, other: {"enabled": False}, "podDisruptionBudget": {"enabled": False}}
            sets = of_kind(render(FLOWS, values=values, folder=tmp_path), "StatefulSet")
            assert [one["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] for one in sets] == [seconds]
            environment = sets[0]["spec"]["template"]["spec"]["containers"][0]["env"]
            assert {"name": "REPLICATOR_REGION", "value": region} in environment

    @pytest.mark.parametrize(
        ("timeout", "seconds"), [("45s", 55), ("1m30s", 100), ("90000ms", 100), ("2m500ms", 131), ("1ms", 11)]
    )
    def test_a_pod_has_longer_than_its_shutdown_timeout(self, tmp_path: Path, timeout: str, seconds: int) -> None:
        config = FLOWS.replace('"1m30s"', f'"{timeout}"')
        values = {"region": "b", "egress": {"enabled": False}, "podDisruptionBudget": {"enabled": False}}
        (ingress,) = of_kind(render(config, values=values, folder=tmp_path), "StatefulSet")
        assert ingress["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] == seconds

    @pytest.mark.parametrize(
        ("config", "values", "message"),
        [
            ("", {}, "the text of the configuration file is needed"),
            ("region = ", {}, "config: not TOML"),
            (REGION, {}, '[kafka.consumer] "group.instance.id" is "": each pod is a member under its own name'),
            (CONFIG.replace("0.0.0.0", "127.0.0.1"), {}, "the probes need an address of the pod"),
            (CONFIG.replace("0.0.0.0:9090", "0.0.0.0:0"), {}, "the probes need an address of the pod"),
            (CONFIG.replace("/var/lib/replicator", "/data"), {}, '[egress] spool_dir is "/data"'),
            (FLOWS, {}, "the file is of several regions, name one: a, b"),
            (FLOWS, {"region": "c"}, "the file has no [clusters.c]"),
            (FLOWS, {"region": "a"}, "ingress.enabled: the file has no flow to a, so the pods of ingress would end"),
            (FLOWS, {"region": "b"}, "egress.enabled: the file has no flow from b, so the pods of egress would end"),
            (ENDED, {"region": "a"}, "egress.enabled: the file has no flow from a"),
            (EGRESS_ONLY, {}, "ingress.enabled: the file has no [ingress], so the pods of ingress would end at once"),
            (ENCRYPTED, {}, 'key_file is "/etc/replicator-keys/keys.toml": name the Secret that has it'),
            (ENCRYPTED.replace("replicator-keys", "keys"), {"encryptionKeys": "k"}, "/etc/replicator-keys/KEY"),
            (CONFIG, {"encryptionKeys": "k"}, "the file has no key_file in [encryption]"),
        ],
    )
    def test_what_its_pods_could_not_run_is_refused(
        self, config: str, values: Mapping[str, Any], message: str, tmp_path: Path
    ) -> None:
        assert message in refusal(config, values=values, folder=tmp_path).replace('\\"', '"')


def test_versions_are_the_packages() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    (version,) = re.findall(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)
    assert (chart["version"], chart["appVersion"]) == (version, version)
    assert json.dumps(VALUES), "plain values only"
