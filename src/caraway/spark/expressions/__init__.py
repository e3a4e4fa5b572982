"""Expressions to Spark columns; a module holds the nodes of a namespace.

What the nodes mean is in `caraway.expr.inference` (types) and in the specification of expressions. Every difference
between Spark and that meaning is made up for here, so that the columns give what the polars compiler gives, bit for
bit; docs/expressions_in_spark.md lists what can't be had that way.
"""

from caraway.spark.expressions import containers, instants, json, numeric, operators, reading, text, writing  # noqa: F401 (they register)
from caraway.spark.expressions.failures import Outcome, compile_with_failure
from caraway.spark.expressions.scope import SparkScope, compile_as, compile_node

__all__ = ["Outcome", "SparkScope", "compile_as", "compile_node", "compile_with_failure"]
