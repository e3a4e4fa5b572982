"""The nodes that Spark can't evaluate with exactly the results of polars, so that Spark's jobs run Python for them."""

from caraway.expr.functions.chrono_format import Field, parse_format
from caraway.expr.nodes import JsonExtract, ListFilter, ListMap, Node, ParseJson, Strftime
from caraway.expr.references import walk


def needs_python(node: Node) -> str | None:
    """Return the reason why Spark needs Python to evaluate an expression; None if it doesn't.

    A stream in real-time mode can't run Python, so such an expression makes its job run in micro-batches.
    """
    return next((reason for inner in walk(node) if (reason := python_reason(inner)) is not None), None)


def python_reason(node: Node) -> str | None:
    """Return the reason why Python has to evaluate this node together with the nodes below it; None if Spark can.

    Spark can't run Python in the body of a lambda. If a lambda's body needs Python, the reason is that of the body, and
    Python evaluates the list function as a whole.
    """
    match node:
        case ParseJson():
            return "str.parse() reads JSON more strictly than Spark does"
        case JsonExtract():
            return "str.json_extract() reads JSON more strictly than Spark does, and knows more paths"
        case Strftime() if node.timezone != "UTC" and Field("Z") in parse_format(node.format):
            return f"dt.strftime() with %Z needs the abbreviations of {node.timezone}, which Java spells otherwise"
        case ListMap():
            return needs_python(node.body)
        case ListFilter():
            return needs_python(node.predicate)
        case _:
            return None
