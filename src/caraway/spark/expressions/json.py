"""JSON is read in Python: Spark's own readers accept text that isn't JSON, and lose parts of text that is."""

from pyspark.sql import Column

from caraway.expr.nodes import JsonExtract, ParseJson
from caraway.spark.expressions.python import evaluated
from caraway.spark.expressions.scope import SparkScope, compile_node


@compile_node.register
def _(node: ParseJson, scope: SparkScope) -> Column:
    return evaluated(node, scope)


@compile_node.register
def _(node: JsonExtract, scope: SparkScope) -> Column:
    return evaluated(node, scope)
