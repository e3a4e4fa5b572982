"""Access from PySpark to Java classes. Only this module uses PySpark's private names."""

from collections.abc import Sequence
from subprocess import Popen
from typing import Any

from pyspark import SparkContext
from pyspark.sql import Column, DataFrame, SparkSession


def jvm_of(session: SparkSession) -> Any:
    """Return the JVM behind `session`, whose attributes are Java packages."""
    return session._jvm


def active_jvm() -> Any:
    """Return the JVM of this process, from any thread; PySpark's active session is bound to one thread.

    Raises:
        RuntimeError: No session has been opened in this process.
    """
    context = SparkContext._active_spark_context
    if context is None:
        raise RuntimeError("columns can be built only after a Spark session was opened")
    return context._jvm


def has_jvm() -> bool:
    """Return whether this process has started a JVM, which stays when a session is stopped."""
    return SparkContext._gateway is not None


def jvm_process(session: SparkSession) -> Popen[bytes]:
    """Return the process of the JVM of `session`."""
    process: Popen[bytes] = session.sparkContext._gateway.proc  # type: ignore[union-attr]
    return process


def causes_of(error: BaseException) -> Sequence[str]:
    """Return the causes of an error of the JVM, the root last; Spark's own message often leaves them out."""
    trace = getattr(getattr(error, "_cause", None), "_stackTrace", None) or ""
    first, *others = trace.splitlines() or [""]
    mark = "Caused by: "
    causes = [first, *(line.removeprefix(mark) for line in others if line.startswith(mark))]
    return [cause for cause in causes if cause]


def call_java(function: Any, *columns: Column) -> Column:
    """Apply a Java `UserDefinedFunction` to columns."""
    to_scala = active_jvm().scala.jdk.javaapi.CollectionConverters.asScala
    return Column(function.apply(to_scala([column._jc for column in columns]).toSeq()))


def to_java(frame: DataFrame) -> Any:
    """Return the Java `Dataset<Row>` of a DataFrame."""
    return frame._jdf


def from_java(dataset: Any, session: SparkSession) -> DataFrame:
    """Return the DataFrame of a Java `Dataset<Row>`."""
    return DataFrame(dataset, session)


def java_session(session: SparkSession) -> Any:
    """Return the Java `SparkSession`."""
    return session._jsparkSession
