"""Regular expressions of definitions: RE2 finds what `re` does in the syntax that both have, in linear time."""

import re
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from caraway.errors import DefinitionError
from caraway.process.patterns import searcher, whole
from tests.timeouts import scaled_now

ATOMS = st.sampled_from(["a", "b", "é", "1", r"\d", r"\w", r"\s", ".", "[ab]", "[^a]", "[a-c1]", r"\.", r"\n", "(?:)"])
COUNTS = st.sampled_from(["", "*", "+", "?", "{2}", "{0,2}", "{1,}", "*?", "+?"])


def _larger(parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    grouped = st.builds("(?:{}){}".format, parts, COUNTS) | st.builds("({})".format, parts)
    return grouped | st.builds("{}{}".format, parts, parts) | st.builds("{}|{}".format, parts, parts)


PATTERNS = st.recursive(st.builds("{}{}".format, ATOMS, COUNTS), _larger, max_leaves=6)
ANCHORED = st.builds(
    "{}(?:{}){}".format, st.sampled_from(["", "^", r"\b", "(?i)"]), PATTERNS, st.sampled_from(["", "$"])
)
# Classes such as \w know ASCII only, and a dollar sign is the end itself, so these texts have no other letters than
# those that patterns name, and end in no line break.
TEXTS = st.text("ab1.é B\nc", max_size=12).map(str.rstrip).filter(str.isascii)


@given(pattern=ANCHORED, text=TEXTS)
@example(pattern="^(?:(a+)+)$", text="aaaaaaaaaa!")
@example(pattern="a|b", text="ab")
def test_patterns_find_what_python_finds(pattern: str, text: str) -> None:
    expected = re.compile(pattern)
    assert searcher(pattern)(text) == (expected.search(text) is not None)
    assert whole(pattern)(text) == (expected.fullmatch(text) is not None)


@pytest.mark.parametrize("pattern", [r"^(a+)+$", r"^(a|a)*$", r"^(\w+\s?)*$", r"(?:a?){40}a{40}$"])
def test_no_pattern_takes_exponential_time(pattern: str) -> None:
    matcher = searcher(pattern)
    begun = time.perf_counter()
    assert not matcher("a" * 39 + "!")
    assert not matcher("a" * 10_000 + "!")
    assert time.perf_counter() - begun < scaled_now(0.25)


@pytest.mark.parametrize(
    ("pattern", "fact"),
    [
        ("(", "missing )"),
        (r"(a)\1", "without look-around, back-references"),
        ("(?=a)b", "without look-around, back-references"),
        ("(?<!a)b", "without look-around, back-references"),
        ("a++", "possessive"),
        (r"a\Z", r"\\z for \\Z"),
        ("a{1001}", "at most 1,000"),
        ("(?:a{100}){100}", "at most 1,000"),
        ("a" * 3_000, "instructions once compiled, at most 2,000"),
        (r"\pL{20}", "instructions once compiled, at most 2,000"),
        ("\ud800", "isn't a regular expression of RE2"),
    ],
)
def test_a_pattern_without_linear_time_is_refused(pattern: str, fact: str) -> None:
    with pytest.raises(DefinitionError, match=re.escape(fact).replace(r"\\\\", r"\\")):
        searcher(pattern)
