"""Templates become HTML. Values are escaped, and a name that a template uses but nobody gave is an error."""

from functools import cache
from importlib.resources import files
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
    }
    environment.globals |= {"monitoring": monitoring, "operating": operating}
    return environment


def marked(text: str) -> Markup:
    """Return text as HTML, with what stands between backticks as code."""
    parts = (escape(part) for part in text.split("`"))
    return Markup("").join(Markup("<code>{}</code>").format(part) if at % 2 else part for at, part in enumerate(parts))


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
