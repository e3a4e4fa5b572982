"""Tests that secrets that were handed out don't leave their process in a text."""

import json
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caraway.graph import redaction
from caraway.graph.redaction import HIDDEN, SHORTEST, redacted, remembered
from tests.effort import examples

VALUES = {"one": "s3cr3t-value", "longer": "s3cr3t-value-and-more", "key": "-----BEGIN\nline two\n-----END"}


@pytest.fixture(autouse=True)
def _forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redaction, "_handed_out", set())


def test_nothing_is_hidden_before_it_was_handed_out() -> None:
    get = remembered(VALUES.__getitem__)
    assert redacted("the value is s3cr3t-value") == "the value is s3cr3t-value"
    assert get("one") == "s3cr3t-value"
    assert redacted("the value is s3cr3t-value") == f"the value is {HIDDEN}"
    with pytest.raises(KeyError):
        get("none")


def test_a_secret_that_contains_another_one_goes_as_a_whole() -> None:
    get = remembered(VALUES.__getitem__)
    get("one"), get("longer")
    assert redacted("s3cr3t-value-and-more, s3cr3t-value") == f"{HIDDEN}, {HIDDEN}"


@settings(max_examples=examples(60))
@given(st.text(min_size=SHORTEST, max_size=30), st.text(max_size=10))
def test_no_spelling_of_a_value_is_left(value: str, around: str) -> None:
    redaction._handed_out.clear()
    remembered(lambda _: value)("any")
    for spelling in (value, repr(value)[1:-1], json.dumps(value)[1:-1]):
        assert redacted(around + spelling).count(spelling) <= (around + HIDDEN).count(spelling)


def test_what_is_printed_is_hidden(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, getattr(sys, name))
    redaction.redact_output()
    remembered(VALUES.__getitem__)("one")
    print("it is", VALUES["one"], file=sys.stderr, flush=True)  # noqa: T201 (that is what is tested)
    print(VALUES)  # noqa: T201
    assert capsys.readouterr() == (f"{VALUES}\n".replace(VALUES["one"], HIDDEN), f"it is {HIDDEN}\n")


def test_lines_of_a_secret_are_hidden_where_a_traceback_is_cut() -> None:
    remembered(VALUES.__getitem__)("key")
    assert redacted("line two\nand something else") == f"{HIDDEN}\nand something else"
