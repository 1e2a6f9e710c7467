"""A schema registry in memory, and an HTTP server with the REST interface that Confluent documents for its own.

    registry = FakeRegistry()                 the state
    RestSchemaRegistry(registry.send, "")     a SchemaRegistry of it, without a socket
    number = registry.add("orders-value", TEXT)   as a producer registers it: the registry chooses the id
    with serving(registry) as url: …          the same over HTTP, on the loopback address
    registry.refusing = (401, 40101, "why")   every request is refused, until None
    registry.requests                         what was asked over HTTP: "GET /subjects", …

Verified by the contract in tests/infra/kafka/cluster/test_schema_registry.py.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from formats.control.schemas import AVRO, Schema, SchemaReference, SubjectVersion


class Refused(Exception):
    def __init__(self, status: int, code: int, message: str) -> None:
        self.status, self.code, self.message = status, code, message


NO_SUBJECT, NO_VERSION, NO_SCHEMA = (
    Refused(404, 40401, "Subject not found."),
    Refused(404, 40402, "Version not found."),
    Refused(404, 40403, "Schema not found"),
)
NO_LEVEL, NO_MODE = (
    Refused(404, 40408, "Subject does not have subject-level compatibility configured"),
    Refused(404, 40409, "Subject does not have subject-level mode configured"),
)


@dataclass(slots=True)
class FakeRegistry:
    schemas: dict[int, Schema] = field(default_factory=dict)
    subjects: dict[str, dict[int, SubjectVersion]] = field(default_factory=dict)
    level: str = "BACKWARD"
    levels: dict[str, str] = field(default_factory=dict)
    modes: dict[str, str] = field(default_factory=dict)
    refusing: tuple[int, int, str] | None = None
    authorization: str = ""  # the header that is wanted; empty: any
    requests: list[str] = field(default_factory=list)
    has_one_id_for_a_schema: bool = False  # refuses a second one: Confluent's, in some versions
    ignores_ids: bool = False  # gives ids of its own in mode IMPORT, too: Apicurio Registry 3.3.3
    keeps_modes: bool = False  # has no request that removes the mode of a subject: an earlier version
    hides_deleted_subjects: bool = False  # lists versions of a deleted subject, and shows none: Apicurio Registry 3.3.3

    def add(
        self,
        subject: str,
        text: str,
        *,
        type: str = AVRO,  # noqa: A002
        references: tuple[SchemaReference, ...] = (),
        id: int = 0,  # noqa: A002
    ) -> int:
        """Register a schema as a producer does. Returns its id: that of the same schema, else the next one."""
        schema = Schema(text=text, type=type, references=references)
        same = next((number for number, one in self.schemas.items() if one == schema), 0)
        number = same or id or max(self.schemas, default=0) + 1
        version = max(self.subjects.get(subject, {}), default=0) + 1
        self._put(SubjectVersion(subject=subject, version=version, id=number), schema)
        return number

    def hide(self, subject: str, version: int) -> None:
        """Soft-delete a version."""
        one = self.subjects[subject][version]
        self.subjects[subject][version] = SubjectVersion(subject=subject, version=version, id=one.id, is_deleted=True)

    def _put(self, version: SubjectVersion, schema: Schema) -> None:
        if self.schemas.get(version.id, schema) != schema:
            raise Refused(422, 42205, f"Overwrite new schema with id {version.id} is not permitted.")
        same = next((number for number, one in self.schemas.items() if one == schema), version.id)
        if self.has_one_id_for_a_schema and same != version.id:
            raise Refused(422, 42205, f"Schema already registered with id {same} instead of input id {version.id}")
        for one in schema.references:
            if one.version not in self.subjects.get(one.subject, {}):
                raise Refused(422, 42201, f"Invalid schema: no reference {one.subject} {one.version}")
        self.schemas[version.id] = schema
        self.subjects.setdefault(version.subject, {})[version.version] = version

    # --- the REST interface ---

    def send(self, method: str, path: str, body: bytes | None, authorization: str = "") -> tuple[int, bytes]:
        """Status and body of the answer."""
        self.requests.append(f"{method} {path}")
        split = urlsplit(path)
        try:
            if self.authorization not in ("", authorization):
                raise Refused(401, 40101, "User cannot access the resource.")
            status, answer = 200, self.answer(method, split.path, parse_qs(split.query), json.loads(body or b"{}"))
        except Refused as refused:
            status, answer = refused.status, {"error_code": refused.code, "message": refused.message}
        return status, json.dumps(answer).encode()

    def answer(self, method: str, path: str, query: Mapping[str, list[str]], body: Mapping[str, Any]) -> Any:
        """Raises Refused."""
        if self.refusing is not None:
            raise Refused(*self.refusing)
        deleted, parts = query.get("deleted") == ["true"], [unquote(part) for part in path.strip("/").split("/")]
        match method, parts:
            case "GET", ["subjects"]:
                return [name for name, found in self.subjects.items() if deleted or _shown(found)]
            case "GET", ["subjects", subject, "versions"]:
                found = self._subject(subject, deleted=deleted)
                return sorted(found if deleted else _shown(found))
            case "GET", ["subjects", subject, "versions", version]:
                return self._version(subject, int(version), deleted=deleted)
            case "POST", ["subjects", subject, "versions"]:
                return self._register(subject, body)
            case "DELETE", ["subjects", subject, "versions", version]:
                if int(version) not in _shown(self._subject(subject, deleted=True)):
                    raise NO_VERSION
                if self._is_referred_to(subject, int(version)):
                    raise Refused(422, 42206, f"One or more references exist to the schema {subject} {version}.")
                self.hide(subject, int(version))
                return int(version)
            case "GET", ["schemas", "ids", number]:
                if int(number) not in self.schemas:
                    raise NO_SCHEMA
                return _to_json(self.schemas[int(number)])
            case "GET", ["config"]:
                return {"compatibilityLevel": self.level}
            case "GET", ["config", subject]:
                return {"compatibilityLevel": self._own(self.levels, subject, NO_LEVEL)}
            case "PUT", ["config"]:
                self.level = body["compatibility"]
                return body
            case "PUT", ["config", subject]:
                if self.modes.get(subject) == "READONLY":
                    raise Refused(422, 42205, f"Subject {subject} is in read-only mode")
                self.levels[subject] = body["compatibility"]
                return body
            case "GET", ["mode", subject]:
                return {"mode": self._own(self.modes, subject, NO_MODE)}
            case "PUT", ["mode", subject]:
                if body["mode"] == "IMPORT" and self.subjects.get(subject) and query.get("force") != ["true"]:
                    raise Refused(422, 42205, "Cannot import since found existing subjects")
                self.modes[subject] = body["mode"]
                return body
            case "DELETE", ["mode", subject] if not self.keeps_modes:
                self._own(self.modes, subject, NO_MODE)
                return {"mode": self.modes.pop(subject)}
        raise Refused(404, 404, "HTTP 404 Not Found")

    def _subject(self, subject: str, *, deleted: bool) -> dict[int, SubjectVersion]:
        found = self.subjects.get(subject, {})
        if not (found if deleted else _shown(found)):
            raise NO_SUBJECT
        return found

    def _is_referred_to(self, subject: str, version: int) -> bool:
        shown = {one.id for found in self.subjects.values() for one in found.values() if not one.is_deleted}
        references = (reference for number in shown for reference in self.schemas[number].references)
        return any((one.subject, one.version) == (subject, version) for one in references)

    def _version(self, subject: str, version: int, *, deleted: bool) -> Mapping[str, Any]:
        found = self._subject(subject, deleted=deleted and not self.hides_deleted_subjects).get(version)
        if found is None or (found.is_deleted and not deleted):
            raise NO_VERSION
        return {"subject": subject, "version": version, "id": found.id, **_to_json(self.schemas[found.id])}

    def _register(self, subject: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        if self.modes.get(subject) != "IMPORT" and ("id" in body or "version" in body):
            raise Refused(422, 42205, f"Subject {subject} is not in import mode")
        schema = _from_json(body)
        if self.ignores_ids:
            return {"id": self.add(subject, schema.text, type=schema.type, references=schema.references)}
        version = SubjectVersion(subject=subject, version=body["version"], id=body["id"])
        self._put(version, schema)
        return {"id": version.id}

    @staticmethod
    def _own(values: Mapping[str, str], subject: str, absent: Refused) -> str:
        if subject not in values:
            raise absent
        return values[subject]


def _shown(found: Mapping[int, SubjectVersion]) -> list[int]:
    return [number for number, one in found.items() if not one.is_deleted]


def _to_json(schema: Schema) -> Mapping[str, Any]:
    """As the real one, which names the type of no Avro schema."""
    answer: dict[str, Any] = {"schema": schema.text}
    if schema.type != AVRO:
        answer["schemaType"] = schema.type
    if schema.references:
        answer["references"] = [
            {"name": one.name, "subject": one.subject, "version": one.version} for one in schema.references
        ]
    return answer


def _from_json(body: Mapping[str, Any]) -> Schema:
    references = tuple(SchemaReference(**one) for one in body.get("references", ()))
    return Schema(text=body["schema"], type=body.get("schemaType", AVRO), references=references)


def _handler(registry: FakeRegistry) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def _handle(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            authorization = self.headers.get("Authorization", "")
            status, data = registry.send(self.command, self.path, body, authorization)
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_PUT = do_POST = do_DELETE = _handle  # noqa: N815 -- as the library wants them

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
            pass

    return Handler


@contextmanager
def serving(registry: FakeRegistry) -> Iterator[str]:
    """The URL."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(registry))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
