"""The way from PySpark to our Java classes: the only place that touches PySpark's private names."""

from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession


def jvm_of(session: SparkSession) -> Any:  # noqa: ANN401 (py4j has no types)
    """Return the JVM behind `session`, whose attributes are Java packages."""
    return session._jvm  # noqa: SLF001


def active_jvm() -> Any:  # noqa: ANN401 (py4j has no types)
    """Return the JVM of the active session.

    Raises:
        RuntimeError: There is no session yet.
    """
    session = SparkSession.getActiveSession()
    if session is None:
        raise RuntimeError("columns can be built only while a Spark session is active")
    return jvm_of(session)


def call_java(function: Any, *columns: Column) -> Column:  # noqa: ANN401 (py4j has no types)
    """Apply a Java `UserDefinedFunction` to columns."""
    to_scala = active_jvm().scala.jdk.javaapi.CollectionConverters.asScala
    return Column(function.apply(to_scala([column._jc for column in columns]).toSeq()))  # noqa: SLF001


def to_java(frame: DataFrame) -> Any:  # noqa: ANN401 (py4j has no types)
    """Return the Java `Dataset<Row>` of a DataFrame."""
    return frame._jdf  # noqa: SLF001


def from_java(dataset: Any, session: SparkSession) -> DataFrame:  # noqa: ANN401 (py4j has no types)
    """Return the DataFrame of a Java `Dataset<Row>`."""
    return DataFrame(dataset, session)
