"""No secret of a configuration is in anything that this program says: values are planted, and searched for."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from replicator import main

PLANTED: Mapping[str, str] = {
    name: f"planted-{number:02d}-{name.lower()}"
    for number, name in enumerate(
        (
            *("SASL_PASSWORD", "KEY_PASSWORD", "KEYSTORE_PASSWORD", "CLIENT_SECRET", "PASSPHRASE", "KEY_PEM"),
            *("S3_SECRET", "S3_TOKEN", "SQS_SECRET", "SYNC_SECRET", "REGISTRY_PASSWORD", "METRICS_PASSWORD"),
            *("SPARK_SECRET", "PROXY"),
        )
    )
}
TEXT = """
region = "here"
[kafka]
"bootstrap.servers" = "127.0.0.1:9"
"security.protocol" = "SASL_SSL"
"sasl.mechanism" = "SCRAM-SHA-512"
"sasl.username" = "app"
"sasl.password" = "${SASL_PASSWORD}"
"ssl.key.password" = "${KEY_PASSWORD}"
"ssl.keystore.password" = "${KEYSTORE_PASSWORD}"
[kafka.admin]
"sasl.oauthbearer.client.secret" = "${CLIENT_SECRET}"
"sasl.oauthbearer.assertion.private.key.passphrase" = "${PASSPHRASE}"
[kafka.producer]
"ssl.key.pem" = "${KEY_PEM}"
[s3]
bucket = "archive"
endpoint_url = "http://127.0.0.1:9"
region_name = "us-east-1"
access_key_id = "AKID"
secret_access_key = "${S3_SECRET}"
session_token = "${S3_TOKEN}"
[sqs]
queue = "events"
access_key_id = "AKID"
secret_access_key = "${SQS_SECRET}"
[sync.destination]
bucket = "copy"
access_key_id = "AKID"
secret_access_key = "${SYNC_SECRET}"
[schema_registry]
url = "http://127.0.0.1:9"
username = "app"
password = "${REGISTRY_PASSWORD}"
[metrics]
listen = "0"
username = "prometheus"
password = "${METRICS_PASSWORD}"
[log]
level = "debug"
[egress.topics.orders]
[[ingress.sources]]
region = "there"
topic = "orders"
[[compaction.jobs]]
name = "all"
[compaction.spark]
"spark.hadoop.fs.s3a.secret.key" = "${SPARK_SECRET}"
"spark.some.proxy" = "http://user:${PROXY}@proxy:3128"
"""

Say = Callable[..., str]


@pytest.fixture
def say(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> Say:
    """What a command prints and logs, at debug level."""
    caplog.set_level(logging.DEBUG)
    for name, value in PLANTED.items():
        monkeypatch.setenv(name, value)

    def call(*command: str, text: str = TEXT, code: int = 0) -> str:
        file = tmp_path / "replicator.toml"
        file.write_text(text, encoding="utf-8")
        with pytest.raises(SystemExit) as ended:
            main.main([*command, str(file)] if "check" in command else [*command, "--config", str(file)])
        out, err = capsys.readouterr()
        assert ended.value.code == code, err
        return out + err + caplog.text

    return call


def without_secrets(printed: str) -> str:
    found = [name for name, value in PLANTED.items() if value in printed]
    assert not found, f"{', '.join(found)}: {printed}"
    return printed


SHOWN = (
    ("config", "show"),
    ("config", "explain"),
    ("config", "show", "--json"),
    ("config", "explain", "--json"),
    ("rights",),
)


@pytest.mark.parametrize(
    "command",
    [pytest.param(one, marks=pytest.mark.long if n > 1 else (), id=" ".join(one)) for n, one in enumerate(SHOWN)],
)
def test_what_the_configuration_is_shown_as(say: Say, command: tuple[str, ...]) -> None:
    printed = without_secrets(say(*command))
    assert "archive" in printed


def test_the_check_of_a_file(say: Say) -> None:
    assert "no problems" in without_secrets(say("config", "check"))


MISTAKES: Mapping[str, tuple[str, str]] = {
    "a literal secret": ('"${SASL_PASSWORD}"', f'"{PLANTED["SASL_PASSWORD"]}"'),
    "a misspelt property": ('"sasl.password"', '"sasl.pasword"'),
    "a misspelt setting": ("secret_access_key", "secret_acess_key"),
    "a secret of another type": ('"${METRICS_PASSWORD}"', f'["{PLANTED["METRICS_PASSWORD"]}"]'),
    "a secret in a URL": ('"http://127.0.0.1:9"', '"https://app:${S3_SECRET}@store:9000"'),
    "a secret in a URL of a property": ('"sasl.username"', '"sasl.oauthbearer.token.endpoint.url"'),
    "a secret in place of a level": ('"debug"', '"${S3_SECRET}"'),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_file_with_a_mistake(say: Say, mistake: str) -> None:
    old, new = MISTAKES[mistake]
    text = TEXT.replace(old, new)
    if "of a property" in mistake:
        text = text.replace(
            '= "app"\n"sasl.password"', '= "https://app:${CLIENT_SECRET}@issuer/token"\n"sasl.password"'
        )
    assert text != TEXT
    printed = say("config", "show", text=text, code=2)
    if mistake == "a secret in place of a level":  # which nothing says is a secret
        printed = re.sub(r"log\.level: .*", "", printed)
    without_secrets(printed)


@pytest.mark.parametrize("command", [("status",), pytest.param(("verify",), marks=pytest.mark.long)], ids=" ".join)
def test_a_command_that_fails(say: Say, command: tuple[str, ...]) -> None:
    """Neither the cluster nor the bucket is there, and the key is no PEM."""
    without_secrets(say(*command, code=1))


def test_properties_of_mirrormaker(say: Say, tmp_path: Path) -> None:
    file = tmp_path / "mm2.properties"
    file.write_text(
        "clusters = a, b\na.bootstrap.servers = a:9092\nb.bootstrap.servers = b:9092\na->b.enabled = true\n"
        "a.security.protocol = SASL_SSL\na.sasl.mechanism = SCRAM-SHA-512\n"
        "a.sasl.jaas.config = org.apache.kafka.common.security.scram.ScramLoginModule required "
        f'username="app" password="{PLANTED["SASL_PASSWORD"]}";\n'
        f"b.ssl.key.password = {PLANTED['KEY_PASSWORD']}\nb.ssl.keystore.password = {PLANTED['KEYSTORE_PASSWORD']}\n",
        encoding="utf-8",
    )
    with pytest.raises(SystemExit):
        main.main(["config", "import-mm2", str(file)])
    without_secrets(say("config", "show"))
