from caraway.dtypes.types import FLOAT, INT, STRING
from caraway.expr.engines import needs_python, python_reason
from caraway.expr.nodes import (
    Binary,
    BinaryOp,
    JsonExtract,
    ListFilter,
    ListMap,
    Literal,
    ParseJson,
    Ref,
    Strftime,
    Strptime,
    Var,
)

X = Ref(name="x")
PARSED = ParseJson(operand=X, dtype=INT)


def test_spark_needs_no_python_for_most() -> None:
    assert needs_python(Binary(op=BinaryOp.ADD, left=X, right=Literal(value=1.0, dtype=FLOAT))) is None
    assert needs_python(Strptime(operand=X, format="%Y-%m-%d %I:%M %p %z", timezone="Europe/Paris")) is None
    assert needs_python(Strftime(operand=X, format="%A %e %B %Y %z", timezone="Europe/Paris")) is None


def test_the_reason_names_what_needs_python() -> None:
    deep = Binary(op=BinaryOp.EQ, left=X, right=PARSED)
    assert "str.parse()" in (needs_python(deep) or "")
    # Spark evaluates the node itself.
    assert python_reason(deep) is None
    assert "str.json_extract()" in (needs_python(JsonExtract(operand=X, path="$.a")) or "")


def test_names_of_zones_need_python_but_that_of_utc() -> None:
    assert needs_python(Strftime(operand=X, format="%H:%M %Z")) is None
    assert "Asia/Tokyo" in (needs_python(Strftime(operand=X, format="%H:%M %Z", timezone="Asia/Tokyo")) or "")


def test_a_lambda_is_evaluated_where_its_body_is() -> None:
    body = ParseJson(operand=Var(name="e"), dtype=STRING)
    assert python_reason(ListMap(operand=X, variable="e", body=body)) is not None
    kept = Binary(op=BinaryOp.EQ, left=body, right=Literal(value="a", dtype=STRING))
    assert python_reason(ListFilter(operand=X, variable="e", predicate=kept)) is not None
    assert python_reason(ListMap(operand=PARSED, variable="e", body=Var(name="e"))) is None
