"""Tests of the rule for names of branches."""

import pytest

from caraway.client import Client
from caraway.errors import InvalidInputError
from caraway.graph.branch_names import check_branch_name


@pytest.mark.parametrize("name", ["a", "feature/x", "v1.2", "_x", "a-b_c", "0", "x" * 200])
def test_names_that_are_possible(name: str) -> None:
    assert check_branch_name(name) == name


@pytest.mark.parametrize(
    "name",
    ["", "../x", "a/../b", "..", ".", "/a", "a/", "a//b", ".hidden", "-rf", "a/.b", "a b", "é", "a\n", "x" * 201, 1],
)
def test_names_that_leave_their_place_are_refused(name: object) -> None:
    with pytest.raises(InvalidInputError, match="can't name a branch"):
        check_branch_name(name)
    client = Client("http://127.0.0.1:1", token="none")
    for make in (client.init_branch, lambda branch: client.clone_branch(branch, "main")):
        with pytest.raises(InvalidInputError, match="can't name a branch"):
            make(name)  # type: ignore[arg-type]
