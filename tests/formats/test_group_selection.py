"""Which consumer groups are selected: by default none."""

from __future__ import annotations

import pytest

from formats.group_selection import GroupPattern, explain_group, group_rules, select_groups

OWN = frozenset({"my.egress"})


def groups(*texts: str) -> tuple[GroupPattern, ...]:
    return tuple(map(GroupPattern, texts))


@pytest.mark.parametrize(
    ("include", "exclude", "name", "selected", "why"),
    [
        ((), (), "billing", False, "tried: there are none"),
        (("billing",), (), "billing", True, "by its name"),
        (("^b.*",), (), "billing", True, "by the expression ^b.*"),
        (("^.*",), ("^bill.*",), "billing", False, "by the exclude ^bill.*"),
        (("billing",), ("^bill.*",), "billing", False, "by the exclude ^bill.*"),
        (("^.*",), (), "console-consumer-123", False, "the default exclude ^console-consumer-.*"),
        (("console-consumer-123",), (), "console-consumer-123", True, "beats the default exclude ^console-consumer-.*"),
        (("^.*",), (), "connect-sink", False, "the default exclude ^connect-.*"),
        (("^.*",), (), "a group: with / anything", True, "by the expression"),
        (("^.*", "my.egress"), (), "my.egress", False, "a group of the replicator"),
        (("^.*",), (), "replicator.ingress", False, "belong to the replicator"),
    ],
)
def test_verdicts(include: tuple[str, ...], exclude: tuple[str, ...], name: str, selected: bool, why: str) -> None:
    rules = group_rules(groups(*include), groups(*exclude))
    assert (name in select_groups([name], rules, OWN)) is selected
    verdict = explain_group(name, rules, OWN)
    assert (verdict.selected, why in verdict.why) == (selected, True), verdict.why


def test_an_empty_id_is_refused() -> None:
    with pytest.raises(ValueError, match="must not be empty"):
        GroupPattern(" ")
