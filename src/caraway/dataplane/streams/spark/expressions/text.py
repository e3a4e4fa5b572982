"""The `str` namespace, without JSON and time."""

from collections.abc import Callable, Mapping

from pyspark.sql import Column
from pyspark.sql import functions as F

from caraway.dataplane.streams.spark.expressions.scope import SparkScope, compile_as, compile_node
from caraway.dtypes.types import STRING
from caraway.expr.nodes import Split, StringCall, StringFunction

_FUNCTIONS: Mapping[StringFunction, Callable[..., Column]] = {
    StringFunction.LOWER: F.lower,
    StringFunction.UPPER: F.upper,
    StringFunction.LEN: lambda text: F.char_length(text).cast("long"),
    StringFunction.CONTAINS: F.contains,
    StringFunction.STARTSWITH: F.startswith,
    StringFunction.ENDSWITH: F.endswith,
    StringFunction.CONCAT: F.concat,
}


@compile_node.register
def _(node: StringCall, scope: SparkScope) -> Column:
    return _FUNCTIONS[node.function](*(compile_as(operand, STRING, scope) for operand in (node.operand, *node.args)))


@compile_node.register
def _(node: Split, scope: SparkScope) -> Column:
    text = compile_as(node.operand, STRING, scope)
    if node.separator == "":
        # An empty separator splits text into its characters. Spark would return one empty text for an empty text, which
        # has no characters.
        return F.when(text == "", F.array().cast("array<string>")).otherwise(F.split(text, "", -1))
    # Spark's `split` takes a regular expression, so the separator is quoted by `\Q` and `\E`. A `\E` in the separator
    # would end the quotation, so it is escaped separately.
    return F.split(text, "\\Q" + node.separator.replace("\\E", "\\E\\\\E\\Q") + "\\E", -1)
