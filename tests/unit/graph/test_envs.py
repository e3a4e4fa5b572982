import pytest

from caraway.errors import DefinitionError, DefinitionTypeError
from caraway.graph.envs import EnvSelector, is_selected, require_env, selector


@pytest.mark.parametrize(
    ("given", "at_none", "at_a", "at_c"),
    [
        # The table of datasets 5.4, connectors 2.8 and featuresets 4.4.
        (None, True, True, True),
        ("a", True, True, False),
        ("~a", True, False, True),
        (["a", "b"], True, True, False),
        (["~a", "~b"], True, False, True),
        ([], True, False, False),
    ],
)
def test_selection(given: EnvSelector, at_none: bool, at_a: bool, at_c: bool) -> None:  # noqa: FBT001
    names = selector(given, "here")
    assert [is_selected(names, env) for env in (None, "a", "c")] == [at_none, at_a, at_c]


@pytest.mark.parametrize("given", ["", "a b", "~", ["a", "~b"], ["a", ""]])
def test_selectors_that_mean_nothing_are_refused(given: EnvSelector) -> None:
    with pytest.raises(DefinitionError, match=r"^here: env"):
        selector(given, "here")


def test_a_selector_is_text() -> None:
    with pytest.raises(DefinitionTypeError, match="env"):
        selector(3, "here")  # type: ignore[arg-type]


@pytest.mark.parametrize("env", ["~prod", "", ["prod"], 3])
def test_a_commit_is_for_one_plain_env(env: object) -> None:
    with pytest.raises(DefinitionError, match="plain name"):
        require_env(env)


@pytest.mark.parametrize("env", ["prod", None])
def test_plain_envs_pass(env: object) -> None:
    require_env(env)
