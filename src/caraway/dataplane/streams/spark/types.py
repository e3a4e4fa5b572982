"""The Spark types that hold Caraway's data types.

Instants stay int64 microseconds and days stay integers, as in records (docs/inside/records.md), so that a job converts
nothing; only calendar functions make a Spark timestamp in between. Decimals are text.
"""

from collections.abc import Iterable

from pyspark.sql import types as spark

from caraway.dtypes import types as t


def spark_type(dtype: t.DataType) -> spark.DataType:
    """Return the Spark type that holds values of `dtype`; optionality and restrictions don't show in it."""
    match t.stored_type(dtype):
        case t.IntType():
            return spark.LongType()
        case t.FloatType():
            return spark.DoubleType()
        case t.BoolType():
            return spark.BooleanType()
        case t.StringType():
            return spark.StringType()
        case t.BytesType():
            return spark.BinaryType()
        case t.ListType(of):
            return spark.ArrayType(spark_type(of))
        case t.MapType(of):
            return spark.MapType(spark.StringType(), spark_type(of))
        case t.StructType(_, fields):
            return row_type(fields)
        case other:
            raise AssertionError(f"stored_type gave {other}")


def row_type(columns: Iterable[tuple[str, t.DataType]]) -> spark.StructType:
    """Return the Spark struct of `columns`, given as pairs of name and type."""
    return spark.StructType([spark.StructField(name, spark_type(dtype)) for name, dtype in columns])
