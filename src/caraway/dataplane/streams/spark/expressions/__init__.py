"""The compilation of expressions to Spark columns; each module has the nodes of a namespace.

`caraway.expr.inference` (types) and the specification of expressions define what the nodes mean. The compiler makes up
for differences of Spark's functions, so that columns have the values of the polars compiler, bit for bit;
docs/inside/expressions_in_spark.md lists the exceptions.
"""

from caraway.dataplane.streams.spark.expressions import containers, instants, numeric, operators, reading, text, writing  # noqa: F401 (they register)
from caraway.dataplane.streams.spark.expressions.failures import Outcome, compile_with_failure
from caraway.dataplane.streams.spark.expressions.scope import SparkScope, compile_as, compile_node

__all__ = ["Outcome", "SparkScope", "compile_as", "compile_node", "compile_with_failure"]
