"""The plan by which long tests are distributed names existing tests."""

import pytest

from tests.spread import LONGEST_FIRST, SHORT, TESTS, TOGETHER, group_of, name_apart, scope_of

FILES = [path for path in TESTS.rglob("test_*.py") if "typing_project" not in path.parts]


def test_all_groups_that_are_named_have_tests() -> None:
    groups = {group_of(path) for path in FILES}
    # In `just full` the tests of Spark are no group.
    names = {name for name in LONGEST_FIRST if not (TESTS / f"{name}.py").is_file()}
    assert names - {"spark"} <= groups
    assert TOGETHER.keys() <= groups
    assert len(set(LONGEST_FIRST)) == len(LONGEST_FIRST)


def test_all_files_of_a_group_are_there() -> None:
    for places in TOGETHER.values():
        for place in places:
            assert (TESTS / place).is_dir() or (TESTS / f"{place}.py").is_file(), place


def test_short_tests_are_dealt_out_one_by_one() -> None:
    assert {group_of(path) for path in FILES if (TESTS / SHORT) in path.parents} == {None}
    assert None not in {group_of(path) for path in FILES if (TESTS / SHORT) not in path.parents}


def test_a_group_stays_together_and_a_short_test_is_alone() -> None:
    assert scope_of("tests/e2e/test_kill.py::test_a[b::c]") == scope_of("tests/e2e/test_flights.py::test_d") == "e2e"
    assert scope_of("tests/integration/topics/test_topics.py::test_a") == "integration/topics/test_topics"
    assert scope_of("tests/unit/test_spread.py::test_a[b]") == "tests/unit/test_spread.py::test_a[b]"


class Operation(pytest.Item):
    """A test with the name that Schemathesis makes: its id is that of the function."""

    def runtest(self) -> None:
        pass


def test_tests_of_one_id_are_told_apart_by_their_names(request: pytest.FixtureRequest) -> None:
    def made(*names: str) -> list[pytest.Item]:
        return [Operation.from_parent(request.session, name=name, nodeid="test_a") for name in names]

    items = made("test_a[GET /b]", "test_a[POST /b]")
    name_apart(items)
    assert [item.nodeid.rpartition("::")[2] for item in items] == ["test_a[GET /b]", "test_a[POST /b]"]
    with pytest.raises(pytest.UsageError, match="only one would run"):
        name_apart(made("test_a[GET /b]", "test_a[GET /b]"))
