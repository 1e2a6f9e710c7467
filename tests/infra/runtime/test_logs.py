from __future__ import annotations

import io
import json
import logging
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.runtime.logs import Format, JsonFormatter, Level, TextFormatter, configure

log = logging.getLogger("tests.logs")

Configured = Callable[..., io.StringIO]


@pytest.fixture
def configured() -> Iterator[Configured]:
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)

    def call(level: Level = "info", style: Format = "json") -> io.StringIO:
        stream = io.StringIO()
        configure(level, style, stream)
        return stream

    yield call
    root.setLevel(level)
    root.handlers[:] = handlers


def test_a_json_line(configured: Configured) -> None:
    stream = configured()
    log.info("segment_stored", extra={"topic": "a", "records": 3, "upload_ms": 1.5})
    line = json.loads(stream.getvalue())
    at = datetime.fromisoformat(line.pop("time"))
    assert at.utcoffset() == timedelta(0)
    assert abs(datetime.now(UTC) - at) < timedelta(minutes=1)
    assert line == {
        "level": "info",
        "event": "segment_stored",
        "logger": "tests.logs",
        "topic": "a",
        "records": 3,
        "upload_ms": 1.5,
    }


def test_an_exception(configured: Configured) -> None:
    stream = configured()
    try:
        raise RuntimeError("because")
    except RuntimeError:
        log.exception("failed")
    (text,) = stream.getvalue().splitlines()
    line = json.loads(text)
    assert line["level"] == "error"
    assert "RuntimeError: because" in line["exception"]
    assert "test_logs.py" in line["exception"]


def test_text(configured: Configured) -> None:
    stream = configured(style="text")
    log.warning("segment_%s", "stored", extra={"topic": "a", "reason": 'two "words"', "empty": ""})
    head, _, rest = stream.getvalue().partition(" ")
    assert datetime.fromisoformat(head).utcoffset() == timedelta(0)
    assert rest == 'WARNING tests.logs segment_stored topic=a reason="two \\"words\\"" empty=""\n'


def test_levels(configured: Configured) -> None:
    stream = configured("warning")
    log.info("quiet")
    log.warning("loud")
    assert [json.loads(line)["event"] for line in stream.getvalue().splitlines()] == ["loud"]


def test_libraries_do_not_log_each_request(configured: Configured) -> None:
    stream = configured("debug")
    logging.getLogger("botocore.endpoint").debug("a request")
    assert stream.getvalue() == ""


def test_configuring_again_replaces_the_handler(configured: Configured) -> None:
    first, second = configured(), configured()
    log.info("once")
    assert first.getvalue() == ""
    assert len(second.getvalue().splitlines()) == 1


def test_a_field_never_replaces_the_event(configured: Configured) -> None:
    stream = configured()
    log.info("stored", extra={"event": "x", "level": 5})
    line = json.loads(stream.getvalue())
    assert (line["event"], line["level"], line["event_"], line["level_"]) == ("stored", "info", "x", 5)


# Names that logging itself rejects in `extra` cannot occur; Python 3.12 has one more of them.
names = st.text(max_size=8).filter(
    lambda name: name not in vars(logging.makeLogRecord({})) and name not in ("message", "asctime", "taskName")
)
values = (
    st.none()
    | st.text()
    | st.integers()
    | st.floats()
    | st.binary()
    | st.lists(st.floats(), max_size=2)
    | st.datetimes()
)


@given(st.text(), st.dictionaries(names, values, max_size=3))
def test_any_line_is_one_line_of_json(event: str, fields: dict[str, object]) -> None:
    record = log.makeRecord("n", logging.INFO, "f", 1, event, (), None, extra=fields)
    text = JsonFormatter().format(record)
    assert "\n" not in text
    assert len(text.splitlines()) == 1
    line = json.loads(text, parse_constant=lambda constant: pytest.fail(f"{constant} is not JSON"))
    assert line["event"] == event
    assert len(line) == 4 + len(fields)


@given(st.dictionaries(names, st.text(), max_size=3))
def test_fields_of_a_text_line_can_be_separated(fields: dict[str, object]) -> None:
    record = log.makeRecord("n", logging.INFO, "f", 1, "event", (), None, extra=fields)
    text = TextFormatter().format(record)
    assert all(f" {name}=" in text for name in fields)
