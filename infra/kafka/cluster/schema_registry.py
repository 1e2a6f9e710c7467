"""A SchemaRegistry over HTTP, with the REST interface that Confluent documents for its Schema Registry."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar
from urllib.parse import quote

from formats.control.schemas import AVRO, Schema, SchemaReference, SubjectVersion
from formats.errors import RegistryRefused, RegistryUnavailable
from infra.settings.schema_registry import SchemaRegistrySettings

CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"
OK, NOT_FOUND = 200, 404
NOTHING_THERE = range(40400, 40500)  # answers of a registry, not of a server that knows no such path
LATER = frozenset({408, 429, 500, 502, 503, 504})
NO_RIGHT = frozenset({401, 403})
REDIRECTIONS = range(300, 400)
LARGEST_BYTES = 64 << 20  # of one answer


T = TypeVar("T")
Send = Callable[[str, str, bytes | None], tuple[int, bytes]]
"""Method, path and body of a request → status and body of the answer. Raises RegistryUnavailable."""


def over_http(settings: SchemaRegistrySettings) -> Send:
    """Safe to call from several threads: each request has a connection of its own."""
    url = settings.url.rstrip("/")
    headers = {"Accept": f"{CONTENT_TYPE}, application/json", "Content-Type": CONTENT_TYPE}
    if settings.username is not None:
        login = base64.b64encode(f"{settings.username}:{settings.password}".encode()).decode()
        headers["Authorization"] = f"Basic {login}"
    tls = ssl.create_default_context(cafile=settings.ca_location) if url.startswith("https") else None
    seconds = settings.timeout.total_seconds()
    opener = urllib.request.build_opener(_NoRedirect, urllib.request.HTTPSHandler(context=tls))

    def send(method: str, path: str, body: bytes | None) -> tuple[int, bytes]:
        request = urllib.request.Request(url + path, data=body, headers=headers, method=method)  # noqa: S310 -- http(s)
        try:
            try:
                with opener.open(request, timeout=seconds) as answer:
                    return answer.status, answer.read(LARGEST_BYTES)
            except urllib.error.HTTPError as error:
                with error:
                    return error.code, error.read(LARGEST_BYTES)
        except (OSError, http.client.HTTPException) as error:  # also URLError, and a timeout
            raise RegistryUnavailable(f"{method} {url}{path}: {error}") from error

    return send


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Another host would get the password, perhaps in clear."""

    def redirect_request(self, *_: object) -> None:
        """The redirection itself is the answer."""


class RestSchemaRegistry:
    """A SchemaRegistry. As thread safe as `send`. `url`: for messages."""

    def __init__(self, send: Send, url: str) -> None:
        self._send, self._url = send, url.rstrip("/")

    def subjects(self, *, deleted: bool) -> Collection[str]:
        return frozenset(self._list(f"/subjects{_with(deleted)}", str))

    def versions(self, subject: str, *, deleted: bool) -> Collection[int]:
        return frozenset(self._list(f"/subjects/{_part(subject)}/versions{_with(deleted)}", int))

    def version(self, subject: str, version: int) -> tuple[int, Schema] | None:
        with self._read(f"/subjects/{_part(subject)}/versions/{version}?deleted=true") as found:
            return None if found is None else (int(found["id"]), _schema(found))

    def compatibility(self, subject: str | None = None) -> str | None:
        with self._read(_of("/config", subject)) as found:  # which may have other settings, and no level
            level = None if found is None else found.get("compatibilityLevel")
            return None if level is None else str(level)

    def schema(self, number: int) -> Schema | None:
        with self._read(f"/schemas/ids/{number}") as found:
            return None if found is None else _schema(found)

    def mode(self, subject: str) -> str | None:
        with self._read(_of("/mode", subject)) as found:
            return None if found is None else str(found["mode"])

    def set_mode(self, subject: str, mode: str) -> None:
        self._request("PUT", f"{_of('/mode', subject)}?force=true", {"mode": mode})

    def unset_mode(self, subject: str) -> None:
        self._request("DELETE", _of("/mode", subject))

    def register(self, version: SubjectVersion, schema: Schema) -> None:
        body: dict[str, Any] = {"schema": schema.text, "id": version.id, "version": version.version}
        if schema.type != AVRO:
            body["schemaType"] = schema.type
        if schema.references:
            body["references"] = [
                {"name": one.name, "subject": one.subject, "version": one.version} for one in schema.references
            ]
        path = f"/subjects/{_part(version.subject)}/versions"
        with self._understood("POST", path):
            given = int((self._request("POST", path, body) or {}).get("id", 0))
        if given != version.id:  # Apicurio Registry 3.3.3 takes mode IMPORT, and ignores the id
            raise RegistryRefused(
                f"POST {self._url}{path}: registered with id {given}, not with {version.id}: this registry does not "
                f"import schemas with their ids; what it registered of {version.subject} is left in it"
            )

    def delete(self, version: SubjectVersion) -> None:
        self._request("DELETE", f"/subjects/{_part(version.subject)}/versions/{version.version}")

    def set_compatibility(self, level: str, subject: str | None = None) -> None:
        self._request("PUT", _of("/config", subject), {"compatibility": level})

    def _list(self, path: str, kind: Callable[[Any], T]) -> Collection[T]:
        """Empty when there is no such thing."""
        with self._read(path) as found:
            if not isinstance(found, list | None):
                raise TypeError(f"{type(found).__name__}, not a list")
            return [kind(one) for one in found or ()]

    @contextmanager
    def _read(self, path: str) -> Iterator[Any]:
        """The answer, which the body takes apart; None when there is no such thing."""
        with self._understood("GET", path):
            yield self._request("GET", path)

    @contextmanager
    def _understood(self, method: str, path: str) -> Iterator[None]:
        """An answer of another form than documented is a refusal: it ends no process."""
        try:
            yield
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            why = f"{type(error).__name__} {error}"
            raise RegistryRefused(
                f"{method} {self._url}{path}: the answer has another form than a schema registry's ({why}): "
                "is this the URL of one?"
            ) from error

    def _request(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        what = f"{method} {self._url}{path}"
        status, text = self._send(method, path, None if body is None else json.dumps(body).encode())
        try:
            answer = json.loads(text)
        except ValueError as error:
            if status in LATER:
                raise RegistryUnavailable(f"{what}: {status}") from error
            if status in REDIRECTIONS:
                _failed(what, status, None)
            raise RegistryRefused(
                f"{what}: {status}, and the answer is no JSON: is this the URL of a schema registry?"
            ) from error
        return answer if status == OK else _failed(what, status, answer)


def schema_registry(settings: SchemaRegistrySettings) -> RestSchemaRegistry:
    return RestSchemaRegistry(over_http(settings), settings.url)


def _failed(what: str, status: int, answer: Any) -> None:
    """None when there is no such thing; else raises."""
    fields = answer if isinstance(answer, dict) else {}
    code, message = fields.get("error_code", 0), fields.get("message", "")
    if status in LATER:
        raise RegistryUnavailable(f"{what}: {status} {message}")
    if status == NOT_FOUND and code in NOTHING_THERE:
        return
    remedy = "; check username, password and its permissions" if status in NO_RIGHT else ""
    if status in REDIRECTIONS:
        remedy = "; it redirects, which is not followed, since another host would get the password: set its own URL"
    raise RegistryRefused(f"{what}: {status} {message} ({code}){remedy}")


def _schema(found: Mapping[str, Any]) -> Schema:
    references = found.get("references") or ()
    return Schema(
        text=str(found["schema"]),
        type=str(found.get("schemaType") or AVRO),
        references=tuple(
            SchemaReference(name=str(one["name"]), subject=str(one["subject"]), version=int(one["version"]))
            for one in references
        ),
    )


def _part(subject: str) -> str:
    return quote(subject, safe="")


def _of(path: str, subject: str | None) -> str:
    return path if subject is None else f"{path}/{_part(subject)}"


def _with(deleted: bool) -> str:
    return "?deleted=true" if deleted else ""
