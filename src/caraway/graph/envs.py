"""Environments: selection of the sources, pipelines, sinks and extractors of a commit."""

from dataclasses import replace

from caraway.errors import DefinitionError, DefinitionTypeError
from caraway.graph.specs import Graph

EnvSelector = str | list[str] | None

# `env=[]` is stored as this selector. A commit for an environment never includes a part with it, because no environment
# has the empty name. A commit without an environment includes the part, since it includes all parts.
_NONE = ("",)


def selector(env: EnvSelector, where: str) -> tuple[str, ...]:
    """Return an `env=` argument as the names of a spec, after checking it; no names select all environments.

    Raises:
        DefinitionError: A name is empty, has a space or is just "~", or plain and negated names are mixed.
        DefinitionTypeError: The argument is neither a string nor a list of strings.
    """
    if env is None:
        return ()
    names = [env] if isinstance(env, str) else env
    if not isinstance(names, (list, tuple)) or not all(isinstance(name, str) for name in names):  # type: ignore[redundant-expr]  # users pass anything
        raise DefinitionTypeError(f"{where}: env is a str or a list of str, not {env!r}")
    for name in names:
        if not name or " " in name or name == "~":
            raise DefinitionError(f'{where}: env "{name}" is not a name; write "prod", or "~prod" for all but it')
    negated = [name for name in names if name.startswith("~")]
    if negated and len(negated) != len(names):
        raise DefinitionError(f"{where}: env {names} mixes names and negated names; use one kind")
    return tuple(names) or _NONE


def require_env(env: object) -> None:
    """Check the `env` of a commit. Raises `DefinitionError` if the environment isn't a plain name."""
    if env is not None and (not isinstance(env, str) or not env or " " in env or env.startswith("~")):
        raise DefinitionError(f'the env of a commit is one plain name such as "prod", not {env!r}')


def is_selected(names: tuple[str, ...], env: str | None) -> bool:
    """Return whether a commit for `env` (None: all) includes a part with this selector."""
    if env is None or not names:
        return True
    if names[0].startswith("~"):
        return f"~{env}" not in names
    return env in names


def common_env(first: tuple[str, ...], second: tuple[str, ...]) -> str | None:
    """Return the name of an environment that two selectors both include, None if there is none."""
    named = [name.removeprefix("~") for name in (*first, *second) if name not in _NONE]
    # Two selectors of negated names (`~name`) both include every name that neither of them mentions, so one such name
    # is a candidate.
    other = next(name for number in range(len(named) + 1) if (name := f"other{number}") not in named)
    candidates = (*named, other) if _NONE not in (first, second) else ()
    return next((name for name in candidates if is_selected(first, name) and is_selected(second, name)), None)


def for_env(graph: Graph, env: str | None) -> Graph:
    """Return the graph with only those sources, pipelines, sinks and extractors that a commit for `env` includes."""
    return Graph(
        datasets=tuple(
            replace(
                dataset,
                sources=tuple(s for s in dataset.sources if is_selected(s.env, env)),
                pipelines=tuple(p for p in dataset.pipelines if is_selected(p.env, env)),
                sinks=tuple(s for s in dataset.sinks if is_selected(s.env, env)),
            )
            for dataset in graph.datasets
        ),
        featuresets=tuple(
            replace(featureset, extractors=tuple(e for e in featureset.extractors if is_selected(e.env, env)))
            for featureset in graph.featuresets
        ),
    )
