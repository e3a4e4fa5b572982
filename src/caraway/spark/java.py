"""Access from PySpark to Java classes. Only this module uses PySpark's private names."""

from collections.abc import Sequence
from subprocess import Popen
from typing import Any

from pyspark import SparkContext
from pyspark.sql import Column, DataFrame, SparkSession


def jvm_of(session: SparkSession) -> Any:  # noqa: ANN401 (py4j has no types)
    """Return the JVM behind `session`, whose attributes are Java packages."""
    return session._jvm  # noqa: SLF001


def active_jvm() -> Any:  # noqa: ANN401 (py4j has no types)
    """Return the JVM of this process, from any thread; PySpark's active session is bound to one thread.

    Raises:
        RuntimeError: No session has been opened in this process.
    """
    context = SparkContext._active_spark_context  # noqa: SLF001
    if context is None:
        raise RuntimeError("columns can be built only after a Spark session was opened")
    return context._jvm  # noqa: SLF001


def has_jvm() -> bool:
    """Return whether this process has started a JVM, which stays when a session is stopped."""
    return SparkContext._gateway is not None  # noqa: SLF001


def jvm_process(session: SparkSession) -> Popen[bytes]:
    """Return the process of the JVM of `session`."""
    process: Popen[bytes] = session.sparkContext._gateway.proc  # type: ignore[union-attr]  # noqa: SLF001
    return process


def causes_of(error: BaseException) -> Sequence[str]:
    """Return the causes of an error of the JVM, the root last; Spark's own message often leaves them out."""
    trace = getattr(getattr(error, "_cause", None), "_stackTrace", None) or ""
    first, *others = trace.splitlines() or [""]
    mark = "Caused by: "
    causes = [first, *(line.removeprefix(mark) for line in others if line.startswith(mark))]
    return [cause for cause in causes if cause]


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


def java_session(session: SparkSession) -> Any:  # noqa: ANN401 (py4j has no types)
    """Return the Java `SparkSession`."""
    return session._jsparkSession  # noqa: SLF001
