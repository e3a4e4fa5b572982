# The tests pass wrong arguments.
# mypy: disable-error-code="arg-type, call-arg, call-overload, type-var"
import inspect
import json
from collections.abc import Callable
from typing import Any

import pytest

import caraway.lib
from caraway.errors import DefinitionError, DefinitionTypeError
from caraway.graph.expectations import EXPECTATION_NAMES, is_strict
from caraway.lib import expectations
from caraway.lib.expectations import EXPECTATIONS_ATTRIBUTE, ExpectationsMark, suite_of
from tests.unit import refusals

MAP = {
    "mostly": None,
    "result_format": None,
    "row_condition": None,
    "condition_parser": None,
    "include_config": True,
    "catch_exceptions": None,
    "meta": None,
    "strict": None,
}
ROW = {name: MAP[name] for name in ("result_format", "include_config", "catch_exceptions", "meta", "strict")}
IN_SET = {**MAP, "parse_strings_as_datetimes": None}
BOUNDS = {
    "min_value": None,
    "max_value": None,
    "strict_min": False,
    "strict_max": False,
    "allow_cross_type_comparisons": None,
    "parse_strings_as_datetimes": False,
    "output_strftime_format": None,
}
PAIR = {**ROW, "ignore_row_if": "both_values_are_missing"}

# For each helper its own parameters with values, then the defaults of all others.
HELPERS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("expect_column_values_to_not_be_null", {"column": "c"}, MAP),
    ("expect_column_values_to_be_null", {"column": "c"}, MAP),
    ("expect_column_values_to_be_of_type", {"column": "c", "type_": "int"}, MAP),
    ("expect_column_values_to_be_in_type_list", {"column": "c", "type_list": ["int"]}, MAP),
    ("expect_column_values_to_be_in_set", {"column": "c", "value_set": [1], "mostly": 0.5}, IN_SET),
    ("expect_column_values_to_not_be_in_set", {"column": "c", "value_set": [1], "mostly": 0.5}, IN_SET),
    ("expect_column_values_to_be_between", {"column": "c", "min_value": 1}, {**MAP, **BOUNDS}),
    (
        "expect_column_value_lengths_to_be_between",
        {"column": "c", "min_value": 1},
        {**MAP, "min_value": None, "max_value": None},
    ),
    ("expect_column_value_lengths_to_equal", {"column": "c", "value": 3}, MAP),
    ("expect_column_values_to_match_regex", {"column": "c", "regex": "a"}, MAP),
    ("expect_column_values_to_not_match_regex", {"column": "c", "regex": "a"}, MAP),
    ("expect_column_values_to_match_regex_list", {"column": "c", "regex_list": ["a"]}, {**MAP, "match_on": "any"}),
    ("expect_column_values_to_not_match_regex_list", {"column": "c", "regex_list": ["a"]}, MAP),
    ("expect_column_values_to_match_strftime_format", {"column": "c", "strftime_format": "%Y"}, MAP),
    ("expect_column_values_to_be_dateutil_parseable", {"column": "c"}, MAP),
    ("expect_column_values_to_be_json_parseable", {"column": "c"}, MAP),
    ("expect_column_values_to_match_json_schema", {"column": "c", "json_schema": {}}, MAP),
    ("expect_column_pair_values_to_be_equal", {"column_A": "a", "column_B": "b"}, PAIR),
    (
        "expect_column_pair_values_A_to_be_greater_than_B",
        {"column_A": "a", "column_B": "b"},
        {**PAIR, "or_equal": None, "parse_strings_as_datetimes": False, "allow_cross_type_comparisons": None},
    ),
    ("expect_column_pair_values_to_be_in_set", {"column_A": "a", "column_B": "b", "value_pairs_set": [(1, 2)]}, PAIR),
    ("expect_multicolumn_sum_to_equal", {"column_list": ["a", "b"], "sum_total": 3}, ROW),
]


@pytest.mark.parametrize(
    ("name", "own", "defaults"),
    [
        pytest.param(*helper, id=helper[0], marks=pytest.mark.spec(f"featuresets:4.5:{row}"))
        for row, helper in enumerate(HELPERS, start=1)
    ],
)
def test_a_helper_gives_its_name_and_all_of_its_arguments(
    name: str, own: dict[str, Any], defaults: dict[str, Any]
) -> None:
    helper: Callable[..., Any] = getattr(caraway.lib, name)
    assert helper(**own) == (name.lower(), {**defaults, **own})
    # Own parameters come first, as listed, and may be given by position.
    assert helper(*own.values()) == helper(**own)
    assert list(helper(**own)[1]) == list(inspect.signature(helper).parameters)
    with pytest.raises(TypeError):
        helper(**own, colour="red")


def test_there_are_no_other_helpers() -> None:
    names = {name.lower() for name in caraway.lib.__all__ if name.startswith("expect_")}
    assert names == EXPECTATION_NAMES == {name.lower() for name, _, _ in HELPERS}


@pytest.mark.spec("connectors:8.1:1")
def test_the_decorator_marks_the_method_with_a_version() -> None:
    @expectations
    def bare(cls: Any) -> Any: ...

    @expectations()
    def empty(cls: Any) -> Any: ...

    @expectations(version=3)
    def versioned(cls: Any) -> Any: ...

    marks = [getattr(method, EXPECTATIONS_ATTRIBUTE) for method in (bare, empty, versioned)]
    assert marks == [ExpectationsMark(version=0), ExpectationsMark(version=0), ExpectationsMark(version=3)]


null = caraway.lib.expect_column_values_to_be_null
mistake = refusals.mistakes_of("connectors")


def calling(name: str, *given: Any, **options: Any) -> Callable[[], Any]:
    return lambda: getattr(caraway.lib, f"expect_column_{name}")(*given, **options)


@pytest.mark.parametrize(
    refusals.ROW,
    [
        mistake(lambda: null("c", mostly=1.5), DefinitionError, "to_be_null|mostly|1.5"),
        mistake(lambda: null("c", mostly=True), DefinitionError, "mostly|True"),
        mistake(lambda: null("c", mostly="0.5"), DefinitionError, "mostly|'0.5'"),
        mistake(lambda: null("c", strict=1), DefinitionError, "to_be_null|strict|1"),
        mistake(lambda: null("c", mostly=0.9, strict=True), DefinitionError, "strict|mostly=0.9"),
        mistake(lambda: suite_of("P", 0, [null("c", 0.9)], strict=True), DefinitionError, "mostly=0.9"),
        mistake(calling("values_to_be_between", "c"), DefinitionError, "to_be_between|min_value|max_value"),
        mistake(calling("value_lengths_to_be_between", "c"), DefinitionError, "lengths|absent"),
        mistake(calling("values_to_match_regex_list", "c", [], "some"), DefinitionError, "match_on|any, all|'some'"),
        mistake(
            calling("pair_values_to_be_equal", "a", "b", ignore_row_if="never"),
            DefinitionError,
            "ignore_row_if|neither|'never'",
        ),
        mistake(lambda: expectations(version="1"), DefinitionTypeError, "version|'1'", "8.1:2"),
        mistake(lambda: expectations(version=True), DefinitionTypeError, "version|True"),
        mistake(lambda: expectations(version=None), DefinitionTypeError, "version|None"),
        mistake(lambda: expectations(strict="yes"), DefinitionTypeError, "strict|'yes'"),
        mistake(lambda: expectations(3), DefinitionTypeError, "int 3|(cls)", "8.1:3"),
        mistake(lambda: expectations(version=1)("text"), DefinitionTypeError, "str 'text'"),
        mistake(lambda: suite_of("Pots", 0, None), DefinitionTypeError, "Pots|NoneType", "8.1:10"),
        mistake(lambda: suite_of("Pots", 0, [3]), DefinitionTypeError, "Pots|3|expect_"),
        mistake(lambda: suite_of("Pots", 0, [("expect_nothing", {})]), DefinitionTypeError, "expect_nothing"),
    ],
)
def test_what_is_wrong_is_refused(call: Callable[[], Any], error: type[Exception], facts: str) -> None:
    refusals.check(call, error, facts)


@pytest.mark.spec("connectors:8.1:7")
def test_an_unknown_helper_or_keyword_is_pythons_own_error() -> None:
    with pytest.raises(AttributeError):
        _ = caraway.lib.expect_table_row_count_to_equal  # type: ignore[attr-defined]
    with pytest.raises(TypeError):
        caraway.lib.expect_column_values_to_be_null(columns="c")


def test_a_suite_drops_what_is_none_and_keeps_the_order_of_parameters() -> None:
    suite = suite_of("Pots", 2, [caraway.lib.expect_column_values_to_be_in_set("c", {"b", "a"}, mostly=0.9)])
    assert (suite.name, suite.version) == ("dataset_Pots_expectations", 2)
    (item,) = suite.expectations
    assert item.name == "expect_column_values_to_be_in_set"
    # A set is sorted, so that equal definitions are equal bytes.
    expected = {"column": "c", "value_set": ["a", "b"], "mostly": 0.9, "include_config": True}
    assert list(json.loads(item.arguments).items()) == list(expected.items())


def test_a_check_is_strict_if_it_or_the_decorator_says_so() -> None:
    check = caraway.lib.expect_column_values_to_be_null
    listed = [check("a"), check("b", strict=True), check("c", 0.5, strict=False)]

    def strict(*, by_default: bool) -> list[bool]:
        return [is_strict(item) for item in suite_of("Pots", 0, listed, strict=by_default).expectations]

    assert strict(by_default=False) == [False, True, False]
    assert strict(by_default=True) == [True, True, False]
    # Checks that only count are stored as if there were no strict ones.
    (item,) = suite_of("Pots", 0, [check("c", strict=False)]).expectations
    assert json.loads(item.arguments) == {"column": "c", "include_config": True}


def test_arguments_must_be_json() -> None:
    class Odd:
        __slots__ = ()

        def __str__(self) -> str:
            return "column"

    # A field of the dataset is sent as its name.
    (item,) = suite_of("Pots", 0, [caraway.lib.expect_column_values_to_be_null(Odd())]).expectations
    assert json.loads(item.arguments)["column"] == "column"
