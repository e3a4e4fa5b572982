"""JSON: Spark's own readers take what isn't JSON and lose what is, so Python reads it."""

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
