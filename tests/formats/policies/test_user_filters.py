"""A user's filters beside the rules of the configuration."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from formats.errors import PluginFailed
from formats.group_selection import GroupPattern, explain_group, group_rules, select_groups
from formats.plugins import FILTERS, POLICIES
from formats.policies.filters import config_property_filter, group_filter, topic_filter
from formats.policies.named_policies import replication_policy
from formats.policies.topic_configs import ConfigFilter
from formats.topic_selection import TopicPattern, TopicRule, explain, select

USER = "tests.formats.policies.user_policies"


def rules(filter_name: str, *texts: str) -> list[TopicRule[str]]:
    return [TopicRule(TopicPattern(text), text, (topic_filter(f"{USER}:{filter_name}"),)) for text in texts]


def test_what_the_filter_refuses_is_excluded_even_by_its_name() -> None:
    chosen = rules("NoTemporary", "^.*", "tmp1")
    assert select(["orders", "tmp1", "tmp2"], chosen, ()) == {"orders": "^.*"}
    assert f"by the exclude of topic_filter {USER}:NoTemporary" in explain("tmp1", chosen, ()).why


@pytest.mark.parametrize(
    ("name", "topic", "why"), [("FailsForSome", "forbidden", "raised KeyError"), ("SaysMaybe", "a", "no bool")]
)
def test_a_filter_that_fails_is_an_error_and_no_answer(name: str, topic: str, why: str) -> None:
    for ask in (lambda: select([topic], rules(name, "^.*"), ()), lambda: explain(topic, rules(name, "^.*"), ())):
        with pytest.raises(PluginFailed, match=why):
            ask()


@pytest.mark.parametrize(
    ("name", "why"),
    [("NoFilter", "lacks should_replicate_topic"), ("Absent", "is not found"), ("NO_CLASS", "no class")],
)
def test_what_is_refused_at_the_start(name: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        topic_filter(f"{USER}:{name}")


def test_groups() -> None:
    found = group_filter(f"{USER}:NoTemporary")
    chosen = group_rules([GroupPattern("^.*"), GroupPattern("tmp1")], [found])
    assert list(select_groups(["billing", "tmp1", "tmp2"], chosen, ())) == ["billing"]
    assert f"by the exclude of group_filter {USER}:NoTemporary" in explain_group("tmp1", chosen, ()).why


def test_configs() -> None:
    filter_ = ConfigFilter(["a[.]b"], config_property_filter(f"{USER}:NoTemporary"))
    assert [filter_.crosses(name) for name in ("a.b", "a.c", "tmp.x", "message.timestamp.type")] == [
        False,
        True,
        False,
        False,
    ]


@pytest.mark.parametrize("load", [group_filter, config_property_filter])
def test_each_kind_needs_its_own_method(load: Callable[[str], object]) -> None:
    with pytest.raises(ValueError, match="lacks should_replicate_"):
        load(f"{USER}:SaysMaybe")


class TestThatExit:
    """A module or a class that ends the process, as a script without `if __name__ == "__main__"` does."""

    @pytest.fixture
    def module(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
        (tmp_path / "a_script.py").write_text("import sys\nsys.exit(3)\n")
        monkeypatch.syspath_prepend(tmp_path)
        return "a_script"

    def test_while_the_module_is_imported(self, module: str) -> None:
        with pytest.raises(ValueError, match=r"'a_script:F' is not found: a_script ends the process .* sys.exit\(3\)"):
            topic_filter(f"{module}:F")

    def test_as_an_entry_point(self, module: str, tmp_path: Path) -> None:
        TestEntryPoints.install(tmp_path, FILTERS, f"script = {module}:F")
        with pytest.raises(ValueError, match=r"'script' is not found: a_script ends the process"):
            topic_filter("script")

    def test_while_the_object_is_created(self) -> None:
        with pytest.raises(ValueError, match="raised SystemExit: 3"):
            topic_filter(f"{USER}:ExitsAtOnce")

    def test_when_it_is_asked(self) -> None:
        with pytest.raises(PluginFailed, match="raised SystemExit: 3"):
            topic_filter(f"{USER}:Exits").matches("t")


class TestEntryPoints:
    @staticmethod
    def install(path: Path, group: str, *lines: str) -> None:
        """As pip does it, a package for each of `lines`."""
        for number, line in enumerate(lines):
            package = path / f"package{number}-1.dist-info"
            package.mkdir(exist_ok=True)
            (package / "METADATA").write_text(f"Metadata-Version: 2.1\nName: package{number}\nVersion: 1\n")
            (package / "entry_points.txt").write_text(f"[{group}]\n{line}\n")

    @pytest.fixture
    def path(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.syspath_prepend(tmp_path)
        return tmp_path

    def test_a_filter_by_its_name_alone(self, path: Path) -> None:
        self.install(path, FILTERS, f"calm = {USER}:NoTemporary")
        for load in (topic_filter, group_filter, config_property_filter):
            found = load("calm")
            assert (found.matches("tmp1"), found.matches("x"), str(found)) == (True, False, f"of {found.setting} calm")

    def test_a_policy_by_its_name_alone(self, path: Path) -> None:
        self.install(path, POLICIES, f"suffixed = {USER}:Suffixed")
        assert replication_policy("suffixed", "us", ".").format_remote_topic("us", "orders") == "orders-from-us"

    def test_ours_cannot_be_replaced(self, path: Path) -> None:
        self.install(path, POLICIES, f"identity = {USER}:Suffixed")
        assert replication_policy("identity", "other", ".").format_remote_topic("other", "orders") == "orders"

    def test_one_that_is_not_installed_names_those_that_are(self, path: Path) -> None:
        self.install(path, FILTERS, f"serene = {USER}:NoTemporary")
        with pytest.raises(ValueError, match=r"'serne' is not found: neither .* installed are: serene"):
            topic_filter("serne")
        self.install(path, POLICIES, f"suffixed = {USER}:Suffixed")
        with pytest.raises(ValueError, match=r'"LegacyReplicationPolicy", "suffixed" or "package.module:Class"'):
            replication_policy("sufixed", "us", ".")

    def test_two_packages_with_the_same_name(self, path: Path) -> None:
        self.install(path, FILTERS, f"twice = {USER}:NoTemporary", f"twice = {USER}:FailsForSome")
        with pytest.raises(ValueError, match=f"several packages declare it .*{USER}:FailsForSome, {USER}:NoTemporary"):
            topic_filter("twice")

    def test_one_whose_module_is_missing(self, path: Path) -> None:
        self.install(path, FILTERS, "gone = no_such_package:Filter")
        with pytest.raises(ValueError, match="'gone' is not found: No module named 'no_such_package'"):
            topic_filter("gone")
