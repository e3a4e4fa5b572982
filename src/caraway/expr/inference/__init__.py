"""The static type of an expression over columns of known types; each module has the rules of one namespace."""

from caraway.expr.inference import containers, instants, numeric, operators, text  # noqa: F401 (rules register)
from caraway.expr.inference.checks import infer, infer_nullable, operand_type, operation_name
from caraway.expr.inference.containers import element_type
from caraway.expr.inference.instants import is_timezone
from caraway.expr.inference.scopes import LambdaSchema, Schema
from caraway.expr.inference.typed import TypedScope

__all__ = [
    "LambdaSchema",
    "Schema",
    "TypedScope",
    "element_type",
    "infer",
    "infer_nullable",
    "is_timezone",
    "operand_type",
    "operation_name",
]
