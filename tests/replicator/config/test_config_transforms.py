"""`transform` of a source: what the check of a configuration says about it."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from formats.records.transform import transform_named
from replicator.config import parse
from replicator.config.explain import explain_topic
from replicator.config.reload import INGRESS, reload
from tests.replicator.config.config_texts import ingress, only

USER = "tests.formats.records.user_transforms"
SOURCE = 'region = "a"\ntopic = "t"\n'
DEFAULTS = f'[ingress.defaults]\ntransform = "{USER}:masked"\n'


def transform_of(text: str) -> str:
    settings = parse(text).ingress
    assert settings is not None
    return settings.sources[0].transform


def test_a_source_has_that_of_the_defaults_unless_it_has_its_own_or_none() -> None:
    assert transform_of(ingress(SOURCE)) == ""
    assert transform_of(ingress(SOURCE + f'transform = "{USER}:only_even"')) == f"{USER}:only_even"
    assert transform_of(ingress(SOURCE) + DEFAULTS) == f"{USER}:masked"
    assert transform_of(ingress(SOURCE + f'transform = "{USER}:only_even"') + DEFAULTS) == f"{USER}:only_even"
    assert transform_of(ingress(SOURCE + 'transform = ""') + DEFAULTS) == ""


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("nonsense", "nonsense: not package.module:function"),
        ("no_such_package:f", "no_such_package:f: No module named 'no_such_package'; install its package, or name its"),
        ("no_such_package.x:f", "or name its directory in PYTHONPATH"),
        (f"{USER}:absent", "has no attribute 'absent'"),
        (f"{USER}:a_number", f"{USER}:a_number: is no function"),
        (f"{USER}:takes_one", "is called with a RecordBatch and a SourcePartition, but: too many positional arguments"),
    ],
)
def test_a_function_that_cannot_be_used_is_named(name: str, why: str) -> None:
    problem = only(ingress(SOURCE + f'transform = "{name}"'))
    assert problem.startswith("ingress.sources[0].transform: ")
    assert why in problem


def test_a_module_that_is_loaded_already_needs_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, name = tmp_path / "mine_transforms.py", "mine_transforms"
    path.write_text("import no_such_package_of_mine")
    monkeypatch.syspath_prepend(tmp_path)
    text = ingress(SOURCE + f'transform = "{name}:later"')
    assert only(text).endswith(": No module named 'no_such_package_of_mine'")  # it is on the path itself
    path.write_text("present = 1")
    importlib.invalidate_caches()
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    assert only(text).endswith(f"module '{name}' has no attribute 'later'")
    path.write_text("def later(batch, source): return batch")
    assert only(text).endswith("is loaded already, and is not read again: if it has it by now, restart the process")
    monkeypatch.delitem(sys.modules, name)


def test_the_explanation_of_a_topic_names_it() -> None:
    text = ingress(SOURCE + f'transform = "{USER}:masked"')
    [explanation] = [one for one in explain_topic(parse(text), "t") if one.flow == "ingress from a"]
    assert explanation.text.endswith(f"; changed by transform {USER}:masked")
    assert explanation.settings["transform"] == f"{USER}:masked"


def test_another_one_needs_no_restart() -> None:
    before, after = (parse(ingress(SOURCE + f'transform = "{USER}:{name}"')) for name in ("masked", "nothing"))
    found = reload(before, after, INGRESS)
    assert (found.needs_restart, found.config) == ([], after)
    assert transform_named(f"{USER}:nothing")


def test_the_header_that_it_gets_is_named_too() -> None:
    text = ingress(SOURCE + f'lineage_header = "from"\ntransform = "{USER}:masked"')
    [explanation] = [one for one in explain_topic(parse(text), "t") if one.flow == "ingress from a"]
    assert explanation.text.endswith(f"; changed by transform {USER}:masked, with header from")
    found = reload(parse(ingress(SOURCE)), parse(text), INGRESS)
    assert (found.needs_restart, found.config) == ([], parse(text))


def test_a_name_that_the_client_would_cut_is_refused() -> None:
    problem = only(ingress(SOURCE + 'lineage_header = "a\\u0000b"'))
    assert problem.startswith("ingress.sources[0].lineage_header: must be at most 249 characters without a NUL")
