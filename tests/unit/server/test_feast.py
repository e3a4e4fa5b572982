"""Feast's shape of requests and answers."""

from typing import Any

import pytest

from caraway.errors import InvalidInputError, UnknownEntityError
from caraway.server.handlers.feast import Asked, entities_of, references_of, resolve, shown
from tests.unit.query.garden import CATALOG


def test_a_join_key_is_the_feature_of_each_view_that_has_it() -> None:
    asked = resolve(CATALOG, ["State:species", "Notes:note"], ["pot"], full=False)
    assert asked == Asked(
        inputs={"pot": ("State.pot", "Notes.pot")},
        outputs=("State.species", "Notes.note"),
        shown=("species", "note"),
    )


def test_full_names_tell_views_apart() -> None:
    references = ["State:species", "ByText:species"]
    assert resolve(CATALOG, references, ["raw"], full=True).shown == ("State__species", "ByText__species")
    with pytest.raises(InvalidInputError, match="full_feature_names"):
        resolve(CATALOG, references, ["raw"], full=False)


def test_a_join_key_that_no_view_has_is_found_elsewhere() -> None:
    assert resolve(CATALOG, ["State:species"], ["raw"], full=False).inputs == {"raw": ("Tap.raw",)}
    assert resolve(CATALOG, ["State:species"], ["Tap.pot"], full=False).inputs == {"Tap.pot": ("Tap.pot",)}
    with pytest.raises(InvalidInputError, match="may be"):
        resolve(CATALOG, ["Faulty:small"], ["pot"], full=False)
    with pytest.raises(InvalidInputError, match="'driver'"):
        resolve(CATALOG, ["State:species"], ["driver"], full=False)


def test_a_service_is_a_featureset() -> None:
    asked = resolve(CATALOG, references_of({"feature_service": "Notes"}), ["pot"], full=False)
    assert asked.outputs == ("Notes.note",)
    with pytest.raises(UnknownEntityError, match="'Nothing'"):
        resolve(CATALOG, ["Nothing"], ["pot"], full=False)


def test_the_answer_has_a_status_for_each_value() -> None:
    asked = Asked(inputs={}, outputs=("Notes.note",), shown=("note",))
    found = shown(asked, {"pot": [1, 2]}, {"Notes.note": ["a", None]})
    assert found["metadata"] == {"feature_names": ["pot", "note"]}
    results: Any = found["results"]
    assert [result["values"] for result in results] == [[1, 2], ["a", None]]
    assert [result["statuses"] for result in results] == [["PRESENT", "PRESENT"], ["PRESENT", "NULL_VALUE"]]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"features": []},
        {"features": "a:b"},
        {"features": ["a"]},
        {"features": ["a:b:c"]},
        {"features": [1]},
        {"feature_service": 1},
        {"feature_service": "a", "features": ["a:b"]},
    ],
)
def test_references_that_are_none(body: dict[str, object]) -> None:
    with pytest.raises(InvalidInputError):
        references_of(body)


@pytest.mark.parametrize("entities", [None, [], {"a": 1}, {"a": [1], "b": []}])
def test_entities_that_are_none(entities: object) -> None:
    with pytest.raises(InvalidInputError):
        entities_of({"entities": entities})
