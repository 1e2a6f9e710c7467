from __future__ import annotations

from importlib.metadata import EntryPoint

import pytest

from formats.errors import ConfigError
from formats.parquet.writer import ParquetFormat
from formats.registry import GROUP, load
from tests.formats.json_lines import JsonLinesFormat

KNOWN = [
    EntryPoint("parquet", "formats.parquet.writer:ParquetFormat", GROUP),
    EntryPoint("json-lines", "tests.formats.json_lines:JsonLinesFormat", GROUP),
    EntryPoint("broken", "tests.formats.no_such_module:Format", GROUP),
]


def test_parquet_is_installed() -> None:
    assert load("parquet") == ParquetFormat()


def test_options_are_passed() -> None:
    assert load("parquet", {"compression_level": 9}) == ParquetFormat(compression_level=9)
    assert load("json-lines", {"indent": 2}, known=KNOWN) == JsonLinesFormat(indent=2)


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(ConfigError) as caught:
        load("avro", known=KNOWN)
    assert caught.value.problems == ("no format 'avro'; installed: broken, json-lines, parquet",)


def test_wrong_options_are_named_all_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        load("parquet", {"levl": 3, "codec": "zstd", "page_bytes": 10, "name": "x"})
    assert [problem.split(";")[0] for problem in caught.value.problems] == [
        "no option 'levl'",
        "no option 'codec'",
        "no option 'name'",
    ]
    assert "compression_level" in caught.value.problems[0]


@pytest.mark.parametrize("options", [{"compression": "zip"}, {"row_group_bytes": 0}, {"compression_level": "high"}])
def test_a_wrong_value_names_its_option(options: dict[str, object]) -> None:
    with pytest.raises(ConfigError) as caught:
        load("parquet", options)
    assert next(iter(options)).split("_")[0] in caught.value.problems[0]


def test_a_format_that_does_not_load_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match="does not load"):
        load("broken", known=KNOWN)
