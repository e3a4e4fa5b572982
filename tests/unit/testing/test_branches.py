"""Branches of the mock."""

# Checkers see classes where decorators make datasets and featuresets.
# mypy: disable-error-code="arg-type, list-item"

import pytest

from caraway.errors import ConflictError, InvalidInputError, UnknownEntityError
from caraway.testing import MockClient
from tests.unit.testing import shop
from tests.unit.testing.shop import HOUR, T0, Users, filled


def names(client: MockClient) -> list[str]:
    stored: list[str] = client.get_dataset_df("Users")["name"].tolist()
    return stored


@pytest.mark.spec("featuresets:5.8:1", "featuresets:5.8:4", "featuresets:5.8:6")
def test_a_new_branch_is_empty_and_checked_out() -> None:
    client = MockClient()
    assert (client.branch(), client.list_branches()) == ("main", ["main"])
    assert client.init_branch("dev/x-1.0").status_code == 200
    assert (client.branch(), client.list_branches()) == ("dev/x-1.0", ["main", "dev/x-1.0"])
    assert client.get_datasets() == []


def test_a_client_may_begin_on_a_branch_of_its_own() -> None:
    client = MockClient("dev")
    assert (client.branch(), sorted(client.list_branches())) == ("dev", ["dev", "main"])


@pytest.mark.spec("featuresets:5.8:2")
def test_a_clone_has_definitions_and_data_and_then_goes_its_own_way() -> None:
    client = filled()
    client.clone_branch("dev", "main")
    assert (client.branch(), len(names(client))) == ("dev", 3)
    client.commit("fewer", [Users])
    assert names(client) == []
    client.checkout("main")
    assert len(names(client)) == 3
    assert len(client.get_datasets()) == 3


def test_a_webhook_reaches_all_branches_that_have_the_endpoint() -> None:
    client = filled()
    client.clone_branch("dev", "main")
    client.init_branch("empty")
    client.log("shop", "users", shop.users((3, "Cy", None, T0 + HOUR)))
    for branch in ("main", "dev"):
        client.checkout(branch)
        assert "Cy" in names(client)


def test_rows_that_do_not_fit_in_one_branch_are_stored_in_none() -> None:
    client = filled()
    client.clone_branch("dev", "main")
    with pytest.raises(InvalidInputError):
        client.log("shop", "users", shop.users((3, "Cy", None, None)))
    for branch in ("main", "dev"):
        client.checkout(branch)
        assert len(names(client)) == 3


@pytest.mark.spec("featuresets:5.8:3")
def test_deleting_the_current_branch_goes_to_main() -> None:
    client = MockClient()
    client.init_branch("a")
    client.init_branch("b")
    client.delete_branch("a")
    assert client.branch() == "b"
    client.delete_branch("b")
    assert (client.branch(), client.list_branches()) == ("main", ["main"])


@pytest.mark.spec("featuresets:5.8:5")
def test_checkout_asks_nobody_and_the_next_operation_fails() -> None:
    client = MockClient()
    client.checkout("nowhere")
    assert client.branch() == "nowhere"
    with pytest.raises(KeyError, match=r"nowhere.*main"):
        client.commit("x")
    client.checkout("made", init=True)
    client.checkout("made", init=True)
    assert client.list_branches() == ["main", "made"]


def test_what_can_not_be_made_or_deleted() -> None:
    client = MockClient("dev")
    with pytest.raises(ValueError, match="main exists"):
        client.init_branch("main")
    with pytest.raises(ConflictError, match="main exists"):
        client.clone_branch("main", "dev")
    with pytest.raises(UnknownEntityError, match="nowhere"):
        client.clone_branch("x", "nowhere")
    with pytest.raises(UnknownEntityError, match="nowhere"):
        client.delete_branch("nowhere")
    with pytest.raises(ConflictError, match="main"):
        client.delete_branch("main")
    assert client.branch() == "dev"
