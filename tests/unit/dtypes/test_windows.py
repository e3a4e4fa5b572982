# The tests pass wrong arguments.
# mypy: disable-error-code="arg-type"
from collections.abc import Callable

import pytest

from caraway.dtypes import Continuous, Hopping, Session, Tumbling
from caraway.errors import DefinitionError, DefinitionTypeError
from tests.unit.refusals import check


@pytest.mark.spec("types:7.1b:8", "types:7.2:1", "types:7.2:2", "types:7.2:3", "types:7.2:4")
def test_windows_are_values() -> None:
    assert Continuous("1h") == Continuous("1h") != Continuous("60m")
    assert Continuous("1h").duration_us == 3_600_000_000
    assert Continuous("forever").duration_us is None
    assert [w.signature() for w in (Continuous("1h"), Tumbling("1d"), Hopping("1d", "2h"), Session("5m"))] == [
        "sliding-1h",
        "tumbling-1d",
        "hopping-1d-2h",
        "session-5m",
    ]
    assert Hopping("1d", "2h", lookback=None).lookback_total_seconds() == 0
    assert (Tumbling("1d", "1h").stride_total_seconds(), Tumbling("1d", "1h").lookback_total_seconds()) == (
        86_400,
        3600,
    )
    assert Session("5m").gap_total_seconds() == 300
    assert Session("1.9s").gap_total_seconds() == 1
    hopping = Hopping("1d", "2h", "1h")
    assert (hopping.duration_total_seconds(), hopping.stride_total_seconds(), hopping.lookback_total_seconds()) == (
        86_400,
        7_200,
        3_600,
    )
    assert Hopping("1d", "24h").stride_total_seconds() == Tumbling("1d").duration_total_seconds()
    assert Hopping("forever", "1d").signature() == "hopping-forever-1d"


@pytest.mark.parametrize(
    ("make", "error", "facts"),
    [
        (lambda: Continuous(5), DefinitionTypeError, "int 5"),
        (lambda: Continuous("60"), DefinitionTypeError, "60|unit"),
        (lambda: Continuous("1x"), DefinitionError, "x|1x"),
        (lambda: Continuous("-1d"), DefinitionError, "-|-1d"),
        (lambda: Continuous("0s"), DefinitionError, "Continuous|0s|forever"),
        (lambda: Tumbling("0s"), DefinitionError, "Tumbling|zero"),
        (lambda: Tumbling("60"), DefinitionError, "Tumbling|duration|60"),
        (lambda: Tumbling("1x"), DefinitionError, "Tumbling|duration|x"),
        (lambda: Tumbling("forever"), DefinitionError, "Tumbling|duration|forever"),
        (lambda: Tumbling("1d", "x"), DefinitionError, "Tumbling|lookback|x"),
        (lambda: Hopping(60, "1s"), DefinitionError, "Hopping|duration"),
        (lambda: Hopping("1x", "1h"), DefinitionError, "Hopping|duration"),
        (lambda: Hopping("1h", "1d"), DefinitionError, "Hopping|stride|1d|1h"),
        (lambda: Hopping("1d", "60"), DefinitionError, "Hopping|stride"),
        (lambda: Hopping("1h", "forever"), DefinitionError, "Hopping|stride|forever"),
        (lambda: Hopping("1d", "1h", "forever"), DefinitionError, "Hopping|lookback"),
        (lambda: Hopping("forever", "1d").duration_total_seconds(), DefinitionError, "Hopping|forever"),
        (lambda: Session(5), DefinitionError, "Session|gap"),
        (lambda: Session("1x"), DefinitionError, "Session|gap"),
        (lambda: Session("forever"), DefinitionError, "Session|gap|forever"),
    ],
)
@pytest.mark.spec("types:7.2:1", "types:7.2:2", "types:7.2:3", "types:7.2:4", "types:7.1b:6", "types:7.1b:7")
@pytest.mark.spec("datasets:8:1", "datasets:8:2", "datasets:8:3", "datasets:8:4")
def test_windows_are_checked_when_made(make: Callable[[], object], error: type[Exception], facts: str) -> None:
    check(make, error, facts)
