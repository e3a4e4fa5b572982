"""The rows that running queries have read, when Spark's store forgets an execution meanwhile."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError

from caraway.dataplane.streams.spark import live
from caraway.dataplane.streams.spark.live import LiveRows, RealTimeRows

GONE = "java.util.NoSuchElementException"


class JavaError(Py4JJavaError):  # type: ignore[misc] # py4j has no types
    """An error of the JVM, whose Java class has this name."""

    def __init__(self, name: str) -> None:
        self.java_exception = SimpleNamespace(getClass=lambda: SimpleNamespace(getName=lambda: name))

    def __str__(self) -> str:
        return "an error of the JVM"


def sequence(*items: object) -> SimpleNamespace:
    return SimpleNamespace(size=lambda: len(items), apply=lambda n: items[n], isEmpty=lambda: not items)


def option(value: object) -> SimpleNamespace:
    return SimpleNamespace(isEmpty=lambda: value is None, get=lambda: value)


def execution(number: int) -> SimpleNamespace:
    return SimpleNamespace(
        executionId=lambda: number,
        completionTime=lambda: option(None),
        jobs=lambda: sequence("a job"),
        description=lambda: f"id = x\nrunId = {number:032x}\nbatch = {number}",
    )


def graph(_: int) -> Any:
    metric = SimpleNamespace(name=lambda: "number of output rows", accumulatorId=lambda: 5)
    node = SimpleNamespace(name=lambda: "RealTimeStreamScan x", metrics=lambda: sequence(metric))
    return SimpleNamespace(allNodes=lambda: sequence(node))


def metrics(_: int) -> Any:
    return SimpleNamespace(get=lambda _: option("2,700"))


def forgetting(read: Callable[[int], Any], forgotten: int, name: str) -> Callable[[int], Any]:
    def look(number: int) -> Any:
        if number == forgotten:
            raise JavaError(name)
        return read(number)

    return look


def looking(monkeypatch: pytest.MonkeyPatch, **reads: Callable[[int], Any]) -> LiveRows:
    given: dict[str, Any] = {"planGraph": graph, "executionMetrics": metrics, **reads}
    store = SimpleNamespace(executionsList=lambda: sequence(execution(1), execution(2)), **given)
    state = SimpleNamespace(statusStore=lambda: store)
    monkeypatch.setattr(live, "java_session", lambda _: SimpleNamespace(sharedState=lambda: state))
    session: Any = None
    return LiveRows(session)


FIRST = {f"{1:032x}": RealTimeRows(batch=1, rows=2700)}
BOTH = FIRST | {f"{2:032x}": RealTimeRows(batch=2, rows=2700)}


def test_the_rows_of_each_running_query_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    assert looking(monkeypatch).look() == BOTH


@pytest.mark.parametrize(("name", "read"), [("planGraph", graph), ("executionMetrics", metrics)])
def test_an_execution_that_spark_has_forgotten_is_passed_over(
    monkeypatch: pytest.MonkeyPatch, name: str, read: Callable[[int], Any]
) -> None:
    assert looking(monkeypatch, **{name: forgetting(read, 2, GONE)}).look() == FIRST


@pytest.mark.parametrize(("name", "read"), [("planGraph", graph), ("executionMetrics", metrics)])
def test_another_error_is_raised(monkeypatch: pytest.MonkeyPatch, name: str, read: Callable[[int], Any]) -> None:
    with pytest.raises(Py4JJavaError):
        looking(monkeypatch, **{name: forgetting(read, 2, "java.lang.NullPointerException")}).look()
