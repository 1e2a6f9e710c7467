"""The REST interface of a schema registry: what is read, what is written, and what each failure means."""

from __future__ import annotations

import base64
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from formats.control.schemas import Schema, SchemaReference, SubjectVersion
from formats.errors import RegistryRefused, RegistryUnavailable
from infra.contracts.schema_registry import IMPORT, READWRITE
from infra.kafka.cluster.schema_registry import RestSchemaRegistry, schema_registry
from infra.settings.field import Invalid
from infra.settings.schema_registry import SchemaRegistrySettings
from tests.fakes.schema_registry import FakeRegistry, serving

ORDER, LINE = '{"type":"record","name":"Order","fields":[]}', '{"type":"string"}'


@pytest.fixture
def fake() -> FakeRegistry:
    return FakeRegistry()


@pytest.fixture
def registry(fake: FakeRegistry) -> Iterator[RestSchemaRegistry]:
    with serving(fake) as url:
        yield client(url)


def client(url: str, **settings: Any) -> RestSchemaRegistry:
    return schema_registry(SchemaRegistrySettings(url=url, timeout=timedelta(seconds=5), **settings))


def test_versions_ids_and_deleted_ones(fake: FakeRegistry, registry: RestSchemaRegistry) -> None:
    first, second = fake.add("a/b é", ORDER), fake.add("a/b é", LINE)
    assert fake.add("other", ORDER) == first, "one schema has one id"
    fake.hide("a/b é", 1)
    fake.hide("other", 1)
    assert registry.subjects(deleted=False) == {"a/b é"}
    assert registry.subjects(deleted=True) == {"a/b é", "other"}
    assert registry.versions("a/b é", deleted=False) == {2}
    assert registry.versions("a/b é", deleted=True) == {1, 2}
    assert registry.versions("other", deleted=False) == registry.versions("nothing", deleted=True) == frozenset()
    assert registry.version("a/b é", 1) == (first, Schema(text=ORDER))
    assert registry.version("a/b é", 2) == (second, Schema(text=LINE))
    assert registry.version("a/b é", 3) is registry.version("nothing", 1) is None
    assert (registry.schema(first), registry.schema(99)) == (Schema(text=ORDER), None)


def test_types_and_references(fake: FakeRegistry, registry: RestSchemaRegistry) -> None:
    references = (SchemaReference(name="line.proto", subject="line", version=1),)
    fake.add("line", "message Line {}", type="PROTOBUF")
    number = fake.add("order", 'import "line.proto";', type="PROTOBUF", references=references)
    assert registry.version("order", 1) == (
        number,
        Schema(text='import "line.proto";', type="PROTOBUF", references=references),
    )


def test_compatibility(fake: FakeRegistry, registry: RestSchemaRegistry) -> None:
    assert (registry.compatibility(), registry.compatibility("s")) == ("BACKWARD", None)
    registry.set_compatibility("FULL")
    registry.set_compatibility("NONE", "s")
    assert (registry.compatibility(), registry.compatibility("s")) == ("FULL", "NONE")


def test_a_schema_is_registered_with_its_version_and_its_id(fake: FakeRegistry, registry: RestSchemaRegistry) -> None:
    references = (SchemaReference(name="line.proto", subject="line", version=4),)
    line = Schema(text="message Line {}", type="PROTOBUF")
    order = Schema(text='import "line.proto";', type="PROTOBUF", references=references)
    for version, schema in (
        (SubjectVersion(subject="line", version=4, id=70), line),
        (SubjectVersion(subject="order", version=2, id=71), order),
    ):
        assert registry.mode(version.subject) is None
        registry.set_mode(version.subject, IMPORT)
        for _ in range(2):  # a repeated request changes nothing
            registry.register(version, schema)
        registry.set_mode(version.subject, READWRITE)
        assert registry.mode(version.subject) == READWRITE
        for _ in range(2):
            registry.unset_mode(version.subject)
        assert registry.mode(version.subject) is None
        assert registry.version(version.subject, version.version) == (version.id, schema)
    registry.set_mode("order", IMPORT)  # also of a subject with schemas
    registry.delete(SubjectVersion(subject="order", version=2, id=71))
    assert registry.versions("order", deleted=False) == frozenset()
    with pytest.raises(RegistryRefused, match=r"422 Overwrite new schema with id 70 is not permitted\. \(42205\)"):
        registry.register(SubjectVersion(subject="order", version=3, id=70), order)


def test_a_registry_that_gives_an_id_of_its_own_is_refused(fake: FakeRegistry, registry: RestSchemaRegistry) -> None:
    fake.ignores_ids = True
    registry.set_mode("order", IMPORT)
    registry.register(SubjectVersion(subject="order", version=1, id=1), Schema(text=ORDER))  # the next one anyway
    with pytest.raises(RegistryRefused, match=r"registered with id 2, not with 7: .*order is left in it"):
        registry.register(SubjectVersion(subject="order", version=2, id=7), Schema(text=LINE))


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (401, RegistryRefused),
        (403, RegistryRefused),
        (422, RegistryRefused),
        (405, RegistryRefused),
        (429, RegistryUnavailable),
        (500, RegistryUnavailable),
        (503, RegistryUnavailable),
    ],
)
def test_a_refusal_and_a_failure_are_told_apart(
    fake: FakeRegistry, registry: RestSchemaRegistry, status: int, error: type[Exception]
) -> None:
    fake.refusing = (status, status * 100, "the reason")
    with pytest.raises(error, match=rf"GET http://127.0.0.1:\d+/subjects: {status} the reason") as raised:
        registry.subjects(deleted=False)
    assert ("check username, password" in str(raised.value)) is (status in {401, 403})


def test_a_registry_that_is_not_there_is_unavailable() -> None:
    with serving(FakeRegistry()) as url:
        pass
    with pytest.raises(RegistryUnavailable, match="Connection refused"):
        client(url).subjects(deleted=False)


def test_a_server_that_is_no_registry_is_refused_and_not_taken_for_an_empty_one(fake: FakeRegistry) -> None:
    with serving(fake) as url, pytest.raises(RegistryRefused, match="404"):
        client(f"{url}/v1/nothing")._request("GET", "/of/ours")


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"url": "http://me:secret@registry"}, "url"),
        ({"url": "http://registry", "username": "me"}, "username"),
        ({"url": "http://registry", "password": "secret"}, "password"),
    ],
)
def test_a_login_is_complete_and_not_in_the_url(given: dict[str, Any], name: str) -> None:
    with pytest.raises(Invalid) as raised:
        SchemaRegistrySettings(**given)
    assert [where for where, _ in raised.value.problems] == [name]
    assert "secret" not in str(raised.value)


def test_basic_authentication(fake: FakeRegistry) -> None:
    fake.authorization = f"Basic {base64.b64encode(b'me:secret').decode()}"
    with serving(fake) as url:
        assert client(url, username="me", password="secret").subjects(deleted=False) == frozenset()
        with pytest.raises(RegistryRefused, match="401"):
            client(url).subjects(deleted=False)


def answering(body: str, status: int = 200) -> RestSchemaRegistry:
    return RestSchemaRegistry(lambda *_: (status, body.encode()), "http://registry")


@pytest.mark.parametrize("config", ['{"normalize": true}', '{"compatibilityLevel": null}'])
def test_a_subject_with_settings_of_its_own_and_no_level_has_none(config: str) -> None:
    assert answering(config).compatibility("orders-value") is None


@pytest.mark.parametrize(
    ("body", "ask"),
    [
        ('{"status": "ok"}', lambda registry: registry.subjects(deleted=True)),
        ('{"1": 2}', lambda registry: registry.versions("s", deleted=True)),
        ('["one"]', lambda registry: registry.versions("s", deleted=True)),
        ('{"id": 1}', lambda registry: registry.version("s", 1)),
        ("[]", lambda registry: registry.compatibility()),
        ("{}", lambda registry: registry.mode("s")),
        ('"text"', lambda registry: registry.schema(1)),
        ("[1]", lambda registry: registry.register(SubjectVersion(subject="s", version=1, id=1), Schema(text="x"))),
    ],
)
def test_an_answer_of_another_form_is_a_refusal(body: str, ask: Callable[[RestSchemaRegistry], object]) -> None:
    """Another exception would end the process that asks."""
    with pytest.raises(RegistryRefused, match="another form than a schema registry's"):
        ask(answering(body))


def test_a_redirection_is_not_followed_with_the_password(fake: FakeRegistry) -> None:
    class Redirecting(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(302)
            self.send_header("Location", url + self.path)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with serving(fake) as url, ThreadingHTTPServer(("127.0.0.1", 0), Redirecting) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            registry = client(f"http://127.0.0.1:{server.server_address[1]}", username="u", password="p")
            with pytest.raises(RegistryRefused, match=r"302 .*it redirects"):
                registry.subjects(deleted=False)
        finally:
            server.shutdown()
    assert fake.requests == []
