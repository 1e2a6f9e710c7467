from __future__ import annotations

from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replicator.console.markup import Markup, content, element, fragment


class Parsed(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.data = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.data += data


# what a parser of HTML changes in any text, is left out
TEXTS = st.text(st.characters(exclude_categories=["Cs", "Cc"]))


@given(TEXTS, TEXTS)
def test_texts_and_attributes_come_back_as_they_went_in(text: str, value: str) -> None:
    found = Parsed(element("p", text, title=value).text)
    assert (found.tags, found.data, found.attributes) == (["p"], text, [("title", value)])


@pytest.mark.parametrize(
    "text", ['"><script>x()</script>', "' onclick='x()", "</p><img src=x onerror=x()>", "&lt;b&gt;"]
)
def test_hostile_texts_make_no_element(text: str) -> None:
    found = Parsed(element("td", text, element("a", text, href=text), class_=text).text)
    assert found.tags == ["td", "a"]
    assert {name for name, _ in found.attributes} == {"class", "href"}
    assert found.data == text * 2


def test_markup_is_taken_as_it_is() -> None:
    assert element("p", Markup("<b>1</b>"), [2, None, "<"]).text == "<p><b>1</b>2&lt;</p>"
    assert content(fragment("a", ["b", fragment("c")])) == "abc"


def test_attributes_that_are_absent_or_without_a_value() -> None:
    assert element("input", name="q", required=True, value=None, disabled=False, tabindex=0).text == (
        '<input name="q" required tabindex="0">'
    )


@pytest.mark.parametrize("name", ["style", "onclick", "onerror"])
def test_styles_and_scripts_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="not allowed"):
        element("p", **{name: "x"})
