"""HTML and SVG elements whose texts and attributes are escaped. Pure.

Text that comes from outside (names of groups and owners, reasons, errors) is a `str`, and every `str` is escaped on its
way in. Only what this module made is `Markup`, and is taken as it is.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from typing import TypeAlias

_VOID = frozenset({"input", "link", "meta", "br", "rect", "line", "path", "circle", "polyline"})
_SVG_VOID = frozenset({"rect", "line", "path", "circle", "polyline"})


@dataclass(frozen=True, slots=True)
class Markup:
    text: str

    def __str__(self) -> str:
        return self.text


Content: TypeAlias = "str | int | float | Markup | Iterable[Content] | None"
AttributeValue: TypeAlias = "str | int | float | bool | None"


def element(name: str, /, *children: Content, **attributes: AttributeValue) -> Markup:
    """`attributes`: an underscore stands for a hyphen, and one at the end is left out (`class_`); None and False leave
    the attribute out, True is one without a value. There are no `style` and no `on…` attributes: the policy of the
    pages forbids them."""
    opened = [name]
    for key, value in attributes.items():
        attribute = key.rstrip("_").replace("_", "-")
        if attribute == "style" or attribute.startswith("on"):
            raise ValueError(f"attribute {attribute} is not allowed: styles and scripts are files")
        if value is None or value is False:
            continue
        opened.append(attribute if value is True else f'{attribute}="{escape(str(value), quote=True)}"')
    head = " ".join(opened)
    body = content(children)
    if name in _VOID and not body:
        return Markup(f"<{head}/>" if name in _SVG_VOID else f"<{head}>")
    return Markup(f"<{head}>{body}</{name}>")


def content(children: Content) -> str:
    """The text of children, escaped where it is not markup."""
    match children:
        case None:
            return ""
        case Markup():
            return children.text
        case str():
            return escape(children, quote=True)
        case int() | float():
            return str(children)
        case _:
            return "".join(content(child) for child in children)


def fragment(*children: Content) -> Markup:
    return Markup(content(children))
