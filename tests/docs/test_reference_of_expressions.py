"""The reference of expressions and types: nothing public is without a page, and no page tells of what isn't there."""

import inspect
import re
from pathlib import Path
from typing import get_args

import pytest

import caraway.dtypes
import caraway.expr
import caraway.expr.expr
import caraway.expr.visitor
from caraway.dtypes import windows
from caraway.dtypes.types import DataType
from caraway.expr import (
    DatetimeExpr,
    DictExpr,
    Expr,
    ListExpr,
    NumberExpr,
    StringExpr,
    StructExpr,
    TimeUnit,
)
from caraway.expr.choices import ThenExpr, WhenExpr
from caraway.expr.functions.chrono_format import COMPOSITES, DIRECTIVES, SIGNS
from caraway.expr.nodes import BinaryOp, UnaryOp
from tests.markdown import DOCS

EXPRESSIONS, TYPES = DOCS / "reference" / "expressions", DOCS / "reference" / "types"
NAMESPACES: dict[str, type[Expr]] = {
    "expr": Expr,
    "num": NumberExpr,
    "str": StringExpr,
    "dt": DatetimeExpr,
    "list": ListExpr,
    "dict": DictExpr,
    "struct": StructExpr,
}
# Pages about many functions, or about none.
OVERVIEWS = {"README", "operators", "time_units", "visitors"}
# Functions for other packages, and classes that users never name.
INTERNAL = {"types_of"} | {cls.__name__ for cls in NAMESPACES.values()}
# Types whose own name isn't what users write, and pages that aren't of one type.
SPELLED = {"String": "str", "Map": "dict"}
ABOUT_TYPES = {"README", "window", "annotated", "durations", "casting", "pandas"}

# A table right below the title lists the functions that share a page.
_SHARED = re.compile(r"\A# [^\n]+\n\n((?:\|[^\n]*\n)+)")


def _told(folder: Path) -> set[str]:
    """Return the names that have a page in a folder: the page's own, and the first column of its first table."""
    names = set()
    for page in folder.glob("*.md"):
        table = _SHARED.match(page.read_text(encoding="utf-8"))
        if table:
            names |= {name for row in table[1].splitlines() for name in re.findall(r"`(\w+)", row.split("|")[1])}
        names.add(page.stem)
    return names


def _methods(cls: type[Expr]) -> set[str]:
    own = {name for name, member in vars(cls).items() if inspect.isfunction(member) or isinstance(member, property)}
    named = {name for name in own if not name.startswith("_")} - NAMESPACES.keys() - {"root"}
    return named | ({"index"} if "__getitem__" in own else set())


def _functions() -> set[str]:
    names = {*caraway.expr.__all__, *caraway.expr.expr.__all__} - INTERNAL
    return {name for name in names if inspect.isfunction(getattr(caraway.expr.expr, name))}


@pytest.mark.parametrize("namespace", NAMESPACES)
def test_every_method_has_a_page_and_every_page_a_method(namespace: str) -> None:
    methods = _methods(NAMESPACES[namespace])
    assert methods
    assert _told(EXPRESSIONS / namespace) - _page_of_siblings(namespace) == methods


def _page_of_siblings(namespace: str) -> set[str]:
    """Return the page that bears the name of none of those that share it."""
    return {"trigonometry"} if namespace == "num" else set()


def test_every_function_has_a_page_and_every_page_a_function() -> None:
    functions = _functions()
    assert {"col", "zip", "make_expr"} <= functions
    assert _told(EXPRESSIONS) - OVERVIEWS == functions


def _text(*pages: Path) -> str:
    return "\n".join(page.read_text(encoding="utf-8") for page in pages)


def test_every_public_name_is_told_of() -> None:
    told = set(re.findall(r"\w+", _text(*EXPRESSIONS.rglob("*.md"))))
    module = caraway.expr.visitor
    visitors = {name for name, cls in inspect.getmembers(module, inspect.isclass) if cls.__module__ == module.__name__}
    public = {*caraway.expr.__all__, *caraway.expr.expr.__all__} - INTERNAL
    assert visitors >= {"Visitor", "ExprPrinter"}
    assert sorted((public | visitors) - told) == []


def test_every_operator_is_told_of() -> None:
    names = {BinaryOp.AND: "&", BinaryOp.OR: "|"}
    told = set(_text(EXPRESSIONS / "operators.md").replace("`", " ").replace("&#124;", "|").split())
    symbols = {names.get(op, op.value) for op in BinaryOp} | {op.value for op in UnaryOp}
    assert symbols - told == set()


def test_every_step_of_a_choice_is_told_of() -> None:
    steps = {name for cls in (WhenExpr, ThenExpr) for name in vars(cls) if not name.startswith("_")} - {"node"}
    assert steps == {"when", "then", "otherwise"}
    assert steps - set(re.findall(r"\w+", _text(EXPRESSIONS / "when.md"))) == set()


def test_every_unit_is_told_of() -> None:
    assert set(TimeUnit) - set(re.findall(r"\w+", _text(EXPRESSIONS / "time_units.md"))) == set()


def test_every_directive_is_told_of() -> None:
    told = set(
        re.findall(r"%(%|\+|:z|\.?\d?\w)", _text(EXPRESSIONS / "str/strptime.md", EXPRESSIONS / "dt/strftime.md"))
    )
    assert (DIRECTIVES | COMPOSITES.keys() | SIGNS.keys()) - told == set()


def test_every_type_has_a_page() -> None:
    types = {cls.__name__.removesuffix("Type") for cls in get_args(DataType)}
    assert len(types) > 10
    assert {page.stem for page in TYPES.glob("*.md")} - ABOUT_TYPES == {
        SPELLED.get(name, name.lower()) for name in types
    }


def test_every_public_type_is_told_of() -> None:
    told = set(re.findall(r"\w+", _text(*TYPES.glob("*.md"))))
    assert set(caraway.dtypes.__all__) - vars(windows).keys() - told == set()
