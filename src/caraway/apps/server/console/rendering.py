"""Templates become HTML. Values are escaped, and a name that a template uses but nobody gave is an error."""

from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files
from typing import Any
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from caraway.observations import figures, monitoring, operating
from caraway.observations.observation import text_of

STATIC = files("caraway.apps.server.console") / "static"


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("caraway.apps.server.console", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "number": figures.number,
        "duration": figures.duration,
        "seconds": figures.seconds,
        "amount": figures.amount,
        "share": figures.share,
        "span": figures.span,
        "clock": figures.clock,
        "ago": figures.ago,
        "instant": figures.instant,
        "marked": marked,
        "text_of": text_of,
        "by_remedy": by_remedy,
    }
    environment.globals |= {"monitoring": monitoring, "operating": operating}
    return environment


def marked(text: str) -> Markup:
    """Return text as HTML, with what stands between backticks as code."""
    parts = (escape(part) for part in text.split("`"))
    return Markup("").join(Markup("<code>{}</code>").format(part) if at % 2 else part for at, part in enumerate(parts))


def by_remedy(problems: Iterable[Any]) -> list[list[Any]]:
    """Return problems in groups that have the same remedy, in the order of the first problem of each group."""
    groups: dict[str, list[Any]] = {}
    for problem in problems:
        # Problems come from the API as mappings, and from this process as `Problem`s.
        remedy = problem["remedy"] if isinstance(problem, Mapping) else problem.remedy
        groups.setdefault(remedy, []).append(problem)
    return list(groups.values())


def render(template: str, **values: object) -> str:
    """Return the HTML of a template."""
    return _environment().get_template(template).render(**values)


def link(path: str, **parameters: object) -> str:
    """Return the address of a page of the console; parameters that are None or empty are left out."""
    given = {name: value for name, value in parameters.items() if value not in {None, ""}}
    return f"/console{path}" + (f"?{urlencode(given)}" if given else "")


def stylesheet() -> bytes:
    """Return the one stylesheet of all pages."""
    return (STATIC / "console.css").read_bytes()
