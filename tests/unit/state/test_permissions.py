"""The laws of permissions."""

from hypothesis import given, settings
from hypothesis import strategies as st

from caraway.state.permissions import ANYBODY, Caller, Grant, Mode
from tests.effort import examples

tags = st.frozensets(st.sampled_from(["pii", "team:a", "team:b"]))
branches = st.sampled_from(["main", "dev"])
modes = st.sampled_from(list(Mode))
grants = st.builds(
    Grant,
    modes=st.frozensets(modes),
    tags=st.none() | tags,
    without=tags,
    branches=st.none() | st.frozensets(branches),
)
entities = st.lists(st.tuples(st.text(max_size=3), tags), max_size=4)


def caller(*granted: Grant) -> Caller:
    return Caller(account="a", token_id="t", grants=granted)


def oracle(granted: list[Grant], mode: Mode, branch: str, of: frozenset[str]) -> bool:
    """Return from the definition of grants alone whether a caller may use a mode on one entity."""
    for grant in granted:
        right_mode = mode in grant.modes
        right_branch = grant.branches is None or branch in grant.branches
        right_tags = grant.tags is None or any(tag in grant.tags for tag in of)
        if right_mode and right_branch and right_tags and not any(tag in grant.without for tag in of):
            return True
    return False


@settings(max_examples=examples(100))
@given(st.lists(grants, max_size=3), modes, branches, entities)
def test_refused_returns_the_entities_that_no_grant_covers(
    granted: list[Grant], mode: Mode, branch: str, found: list[tuple[str, frozenset[str]]]
) -> None:
    asked = caller(*granted)
    refused = asked.refused(mode, branch, found)
    assert refused == [name for name, of in found if not oracle(granted, mode, branch, of)]
    if asked.may_all(mode, branch):
        assert refused == []
        assert asked.may(mode, branch)
    if not asked.may(mode, branch):
        assert refused == [name for name, _ in found]


@settings(max_examples=examples(50))
@given(st.lists(grants, max_size=3), grants, modes, branches, entities)
def test_a_further_grant_takes_nothing_away(
    granted: list[Grant], more: Grant, mode: Mode, branch: str, found: list[tuple[str, frozenset[str]]]
) -> None:
    before = caller(*granted).refused(mode, branch, found)
    after = caller(*granted, more).refused(mode, branch, found)
    assert set(after) <= set(before)


def test_without_any_grant_nothing_may_be_done() -> None:
    for mode in Mode:
        assert not caller().may(mode, "main")
        assert ANYBODY.may_all(mode, "main")
