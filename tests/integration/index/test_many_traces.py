"""The index against a dictionary, over more traces than the fast tests have time for."""

import pytest

from tests.unit.dataplane.index.test_index import MACHINES, IndexMachine, check


@pytest.mark.full(reason="more traces of the same kind as in tests/unit/dataplane/index/test_index.py")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("machine", MACHINES)
def test_the_index_answers_as_a_dictionary_does(machine: type[IndexMachine]) -> None:
    check(machine, 50)
