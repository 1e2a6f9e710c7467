"""Tokens for SASL/OAUTHBEARER: their makers, and the clients that are created with them."""

from __future__ import annotations

import base64
import sys
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from formats.errors import BrokerUnavailable, ConfigError
from infra.kafka.client.connect import connect
from infra.kafka.client.tokens import token_callback
from infra.settings.kafka import KafkaSettings, aws_region_of
from tests.infra.certificates import Authority

MSK = "b-1.demo.a1b2c3.c2.kafka.eu-west-1.amazonaws.com:9098,b-2.demo.a1b2c3.c2.kafka.eu-west-1.amazonaws.com:9098"
HERE = "tests.infra.token_makers"


@pytest.fixture(autouse=True)
def no_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Neither of the environment, nor of a file, nor of the machine."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))


def msk(*, auth_region: str | None = None, auth_profile: str | None = None) -> dict[str, str]:
    settings = KafkaSettings(
        base={"bootstrap.servers": MSK}, auth="aws-msk-iam", auth_region=auth_region, auth_profile=auth_profile
    )
    return settings.properties("admin")


class TestSignedByAws:
    @pytest.fixture(autouse=True)
    def credentials(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "planted-secret-key")
        monkeypatch.setenv("AWS_SESSION_TOKEN", "planted-session-token")

    def test_the_token_is_a_signed_url_of_the_region_of_the_brokers(self) -> None:
        callback = token_callback(msk())
        assert callback is not None
        text, ends_at = callback("")
        url = urlsplit(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode())
        query = {name: one for name, [one] in parse_qs(url.query).items()}
        assert (url.scheme, url.netloc) == ("https", "kafka.eu-west-1.amazonaws.com")
        assert query["Action"] == "kafka-cluster:Connect"
        assert query["X-Amz-Algorithm"] == "AWS4-HMAC-SHA256"
        assert query["X-Amz-Credential"].split("/")[0] == "AKIDEXAMPLE"
        assert query["X-Amz-Credential"].split("/")[2:] == ["eu-west-1", "kafka-cluster", "aws4_request"]
        assert query["X-Amz-Security-Token"] == "planted-session-token"
        assert len(query["X-Amz-Signature"]) == 64
        signed_at = datetime.strptime(query["X-Amz-Date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
        assert ends_at == (signed_at + timedelta(seconds=int(query["X-Amz-Expires"]))).timestamp()
        assert abs(signed_at - datetime.now(UTC)) < timedelta(minutes=1)
        assert "planted-secret-key" not in str(query)

    def test_the_setting_of_the_region_wins(self) -> None:
        callback = token_callback(msk(auth_region="us-west-2"))
        assert callback is not None
        text, _ = callback("")
        assert b"kafka.us-west-2.amazonaws.com" in base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))

    def test_a_profile_signs_if_the_setting_names_one(self, tmp_path: Path) -> None:
        (tmp_path / "credentials").write_text(
            "[mirror]\naws_access_key_id = AKIDOFPROFILE\naws_secret_access_key = other\n", encoding="utf-8"
        )
        callback = token_callback(msk(auth_profile="mirror"))
        assert callback is not None
        text, _ = callback("")
        assert b"AKIDOFPROFILE" in base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))

    def test_clients_of_every_kind_are_created_with_it(self) -> None:
        properties = msk() | {"bootstrap.servers": "127.0.0.1:1"}
        connect(AdminClient, properties)
        connect(Producer, properties)
        with closing(connect(Consumer, {**properties, "group.id": "any"})):
            pass

    def test_without_the_package_the_error_names_the_extra(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "aws_msk_iam_sasl_signer", None)
        with pytest.raises(ConfigError, match=r'pip install "kafka-segment-replicator\[msk\]"'):
            connect(AdminClient, msk())


def test_without_credentials_of_aws_no_client_is_created() -> None:
    with pytest.raises(BrokerUnavailable, match=r"auth = aws-msk-iam made no token.*no credentials of AWS; give this"):
        connect(Producer, msk())


@pytest.mark.parametrize(
    ("servers", "region"),
    [
        (MSK, "eu-west-1"),
        ("boot-a1b2c3.c3.kafka-serverless.us-east-1.amazonaws.com:9098", "us-east-1"),
        ("b-1.demo.a1b2c3.c2.kafka.cn-north-1.amazonaws.com.cn:9098", "cn-north-1"),
        ("b-1.demo.a1b2c3.c2.kafka.us-gov-west-1.amazonaws.com:9098", "us-gov-west-1"),
        ("b-1.scram.a1b2c3.c2.kafka.eu-west-1.amazonaws.com:9098,b-1.x.c2.kafka.us-east-1.amazonaws.com:9098", ""),
        ("broker-1.example.com:9098", ""),
        ("", ""),
    ],
)
def test_the_names_of_brokers_say_the_region(servers: str, region: str) -> None:
    assert aws_region_of(servers) == region


class TestOfAUser:
    def properties(self, name: str) -> dict[str, str]:
        settings = KafkaSettings(base={"bootstrap.servers": "127.0.0.1:1"}, auth=f"{HERE}:{name}")
        return settings.properties("consumer")

    def test_its_token_is_taken(self) -> None:
        callback = token_callback(self.properties("ShortLived"))
        assert callback is not None
        _, ends_at = callback("")
        assert 0 < ends_at - datetime.now(UTC).timestamp() <= 15

    def test_the_first_token_is_made_before_the_client_and_not_made_again(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setenv("TOKENS_MADE", str(tmp_path / "made"))
        with closing(connect(Consumer, {**self.properties("ShortLived"), "group.id": "any"})):
            assert len((tmp_path / "made").read_text(encoding="utf-8").splitlines()) == 1

    def test_a_failure_is_an_error_at_once_with_its_reason(self) -> None:
        """The client would wait for ten seconds, and then name none."""
        with pytest.raises(
            BrokerUnavailable, match=f"auth = {HERE}:Never made no token.*the identity provider is away"
        ):
            connect(Consumer, {**self.properties("Never"), "group.id": "any"})

    def test_what_is_no_pair_is_not_quoted(self) -> None:
        with pytest.raises(BrokerUnavailable, match="not a text and the second of its end") as caught:
            connect(AdminClient, self.properties("NoPair"))
        assert "secret-token" not in str(caught.value)

    @pytest.mark.parametrize(("name", "why"), [("Missing", "is not found"), ("SECONDS", "is no class")])
    def test_what_is_no_maker_is_refused(self, name: str, why: str) -> None:
        with pytest.raises(ConfigError, match=f"kafka.auth: .*{name}.*{why}"):
            connect(AdminClient, self.properties(name))


class TestFiles:
    """A certificate or a key that cannot be loaded is named, with its file, and not with what is in it."""

    def connect(self, **files: str) -> None:
        given = {name.replace("_", "."): value for name, value in files.items()}
        connect(AdminClient, {"bootstrap.servers": "127.0.0.1:1", "security.protocol": "SSL", **given})

    def test_a_file_that_is_not_there(self) -> None:
        with pytest.raises(ConfigError, match=r'kafka\."ssl.certificate.location": cannot be loaded \(/nowhere.pem\)'):
            self.connect(ssl_certificate_location="/nowhere.pem")

    def test_a_wrong_password_of_a_key(self, tmp_path: Path) -> None:
        pair = Authority(tmp_path).sign("client", password="planted")
        with pytest.raises(ConfigError, match=r"ssl.key.location.*and that ssl.key.password fits it") as caught:
            self.connect(
                ssl_certificate_location=str(pair.certificate), ssl_key_location=str(pair.key), ssl_key_password="other"
            )
        assert "other" not in str(caught.value)

    def test_a_key_in_the_settings_is_not_quoted(self) -> None:
        with pytest.raises((ConfigError, KafkaException)) as caught:
            self.connect(ssl_key_pem="planted-key")
        assert "ssl.key.pem" in str(caught.value)
        assert "planted-key" not in str(caught.value)
