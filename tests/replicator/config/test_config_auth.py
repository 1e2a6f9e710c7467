"""`auth` of `[kafka]`: what it adds for the clients, what contradicts it, and how it is shown."""

from __future__ import annotations

import pickle
import tomllib

import pytest

from infra.settings.kafka import ROLES
from replicator.config import parse
from replicator.config.explain_settings import explain_settings
from replicator.config.flows import tables_of
from replicator.config.show import to_tables, to_toml
from tests.replicator.config.config_texts import problems

MSK = "b-1.demo.a1b2c3.c2.kafka.eu-west-1.amazonaws.com:9098"


def text(*lines: str, servers: str = MSK, more: str = "") -> str:
    return "\n".join(
        ('region = "eu"', "[kafka]", f'"bootstrap.servers" = "{servers}"', *lines, more, "[s3]", 'bucket = "archive"')
    )


def test_every_client_gets_what_makes_its_tokens() -> None:
    config = parse(text('auth = "aws-msk-iam"', 'auth_profile = "mirror"'))
    for role in ROLES:
        assert config.cluster.properties(role) == {
            "bootstrap.servers": MSK,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "OAUTHBEARER",
            "auth": "aws-msk-iam",
            "auth_region": "eu-west-1",
            "auth_profile": "mirror",
        }
    assert pickle.loads(pickle.dumps(config)) == config  # as for a task of Spark


def test_it_is_shown_and_explained_as_it_was_written() -> None:
    written = text('auth = "tests.some:Class"', '"ssl.ca.location" = "/ca.pem"')
    config = parse(written)
    assert parse(to_toml(to_tables(config))) == config
    found = {one.name: one for one in explain_settings(config, tables_of(tomllib.loads(written), None, hint=""))}
    assert found["kafka.auth"].value == '"tests.some:Class"'
    assert found["kafka.auth"].origin == "from the file"
    assert "aws-msk-iam" in found["kafka.auth"].doc
    assert "auth='tests.some:Class'" in repr(config.kafka)


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        (['auth = "aws-msk"'], 'kafka.auth: must be "aws-msk-iam" or "package.module:Class", not \'aws-msk\''),
        (["auth = 1"], "kafka.auth: must be a text in quotes, not a whole number"),
        (['auth_region = "eu"'], "kafka.auth_region: belongs to auth, which is not set: set it, or take this out"),
        (
            ['auth = "aws-msk-iam"', '"sasl.mechanisms" = "PLAIN"'],
            'kafka."sasl.mechanisms": must be "OAUTHBEARER", or left out, since auth = "aws-msk-iam"',
        ),
        (
            ['auth = "aws-msk-iam"', '"security.protocol" = "sasl_plaintext"'],
            'kafka."security.protocol": must be "SASL_SSL", or left out, since auth = "aws-msk-iam"',
        ),
        (
            ['auth = "a.b:C"', '"security.protocol" = "PLAINTEXT"'],
            'kafka."security.protocol": must be "SASL_SSL" or "SASL_PLAINTEXT", or left out, since auth = "a.b:C"',
        ),
        (
            ['auth = "aws-msk-iam"', '"sasl.oauthbearer.method" = "oidc"'],
            'kafka."sasl.oauthbearer.method": has no effect with auth = "aws-msk-iam", which makes the tokens: take '
            "one of them out",
        ),
        (
            ['"sasl.mechanism" = "OAUTHBEARER"', '"security.protocol" = "SASL_SSL"'],
            'kafka."sasl.mechanism": nothing makes tokens for "OAUTHBEARER": set auth, or "sasl.oauthbearer.method" = '
            '"oidc" with what belongs to it',
        ),
    ],
)
def test_contradictions_are_refused(lines: list[str], problem: str) -> None:
    assert problems(text(*lines)) == [problem]


def test_a_role_cannot_contradict_it_either() -> None:
    more = '[kafka.producer]\n"sasl.username" = "writer"'
    assert problems(text('auth = "aws-msk-iam"', more=more)) == [
        'kafka.producer."sasl.username": has no effect with auth = "aws-msk-iam", which makes the tokens: take one of '
        "them out"
    ]


def test_a_region_that_no_broker_names_has_to_be_set() -> None:
    lacking = text('auth = "aws-msk-iam"', servers="broker.example.com:9098")
    assert problems(lacking) == [
        'kafka.auth_region: missing: no name in "bootstrap.servers" says the AWS region of the cluster'
    ]
    config = parse(text('auth = "aws-msk-iam"', 'auth_region = "eu-west-1"', servers="broker.example.com:9098"))
    assert config.cluster.properties("admin")["auth_region"] == "eu-west-1"


@pytest.mark.parametrize(
    "line", ['"sasl.oauthbearer.method" = "oidc"', '"enable.sasl.oauthbearer.unsecure.jwt" = true']
)
def test_the_client_s_own_ways_to_tokens_stay(line: str) -> None:
    config = parse(text('"sasl.mechanism" = "OAUTHBEARER"', line))
    assert "auth" not in config.cluster.properties("admin")
