from typing import Any

import pytest

from caraway.errors import DefinitionError
from caraway.expr.functions.json_path import first_match, parse_path

DOCUMENT: dict[str, Any] = {
    "a": [{"k": 1, "b": "x"}, {"k": 5, "b": "y"}, {"k": None}, {"k": "5"}],
    "z z": {"b": [1, 2, 3]},
    "it's": {'"': 7},
    "limit": 4,
}


@pytest.mark.spec("types:12.2.3:1", "types:12.2.3:2")
@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("$", DOCUMENT),
        ("$.a[1].b", "y"),
        ("$['z z']['b'][0]", 1),
        ('$["it\'s"]', {'"': 7}),
        ("$['it\\'s']['\"']", 7),
        ("$.*[1]", {"k": 5, "b": "y"}),
        ("$.a[*].k", 1),
        ("$['z z'].b[1:]", 2),
        ("$['z z'].b[:2]", 1),
        ("$['z z'].b[0:3:2]", 1),
        ("$['z z'].b[2:2]", None),
        ("$['z z'].b[3, 1]", 2),
        # An outer match comes before those inside it, and both in the document's order.
        ("$..b", "x"),
        ("$..[1]", {"k": 5, "b": "y"}),
        ("$..*", DOCUMENT["a"]),
        ("$.a[?(@.k > 1)].b", "y"),
        ("$.a[?(@.k>=1 && @.b=='y')].b", "y"),
        ("$.a[?(@.k == 7 || !(@.b))]", {"k": None}),
        ("$.a[?(@.k > $.limit)].k", 5),
        ("$.a[?(@.k == null)]", {"k": None}),
        ("$.a[?(@.k == '5')]", {"k": "5"}),
        ("$.a[?(@.k != 1)].k", 5),
        ("$.a[?(@.k < 'a')].k", "5"),
        ("$.a[?@.b].b", "x"),
        ("$.a[?(@.k == 5.0)].b", "y"),
        # A missing value is neither less nor more.
        ("$.a[?(@.q < 1)]", None),
        ("$.a[?(@.q == 1)]", None),
        ("$.a[?(@.q == @.r)].k", 1),
        ("$.a[9]", None),
        ("$.a.k", None),
        ("$.a[2].k", None),
        ("$.limit[0]", None),
        ("$.nothing", None),
        ("$..nothing", None),
    ],
)
def test_the_first_match(path: str, expected: Any) -> None:
    assert first_match(parse_path(path), DOCUMENT) == expected


@pytest.mark.spec("types:12.2.3:1")
@pytest.mark.parametrize(
    ("path", "part"),
    [
        ("a", r'a path begins with "\$", found "a" at position 0'),
        ("", "found its end at position 0"),
        ("$a", 'found "a" at position 1'),
        ("$.", "expected the name of a key"),
        ("$.1", "expected the name of a key"),
        ("$..", "expected the name of a key"),
        ("$[", "expected an index"),
        ("$[0", 'expected "\\]"'),
        ("$[-1]", "negative ones are not supported"),
        ("$[01]", 'expected "\\]"'),
        ("$[a]", "expected an index"),
        ("$['a]", "expected an index"),
        ("$['\\x']", "escapes of JSON"),
        ("$[0:1:0]", "a step of at least 1"),
        ("$[?(@.k > )]", "expected @"),
        ("$[?(@.k > 1]", 'expected "\\)"'),
        ("$[?(1)]", "expected a comparison"),
        ("$.a b", 'expected ".key"'),
    ],
)
def test_a_malformed_path_is_refused_with_the_place(path: str, part: str) -> None:
    with pytest.raises(DefinitionError, match=part) as caught:
        parse_path(path)
    assert f'bad JSONPath "{path}"' in str(caught.value)


def test_truth_values_are_no_numbers() -> None:
    assert first_match(parse_path("$[?(@ == 1)]"), [True, 1.0]) == 1.0
    assert first_match(parse_path("$[?(@ == true)]"), [1, True]) is True


def test_containers_are_compared_by_their_values() -> None:
    assert first_match(parse_path("$.b[?(@ == $.a)]"), {"a": {"x": [1]}, "b": [{"x": [True]}, {"x": [1.0]}]}) == {
        "x": [1.0]
    }
