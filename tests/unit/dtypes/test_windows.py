# The tests pass wrong arguments.
# mypy: disable-error-code="arg-type"
from collections.abc import Callable

import pytest

from caraway.dtypes import Continuous, Hopping, Session, Tumbling
from caraway.errors import DefinitionError, DefinitionTypeError


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
    ("make", "error", "fact"),
    [
        (lambda: Continuous("1x"), DefinitionError, "x"),
        (lambda: Continuous("60"), DefinitionTypeError, "60"),
        (lambda: Continuous("0s"), DefinitionError, "0s"),
        (lambda: Tumbling("forever"), DefinitionError, "duration"),
        (lambda: Tumbling("60"), DefinitionError, "duration"),
        (lambda: Tumbling("1d", "x"), DefinitionError, "lookback"),
        (lambda: Hopping("1h", "1d"), DefinitionError, "stride"),
        (lambda: Hopping("1h", "forever"), DefinitionError, "stride"),
        (lambda: Hopping("forever", "1d").duration_total_seconds(), DefinitionError, "forever"),
        (lambda: Session("forever"), DefinitionError, "gap"),
        (lambda: Session(5), DefinitionError, "gap"),
        (lambda: Hopping("1d", "60"), DefinitionError, "stride"),
        (lambda: Hopping(60, "1s"), DefinitionError, "duration"),
        (lambda: Hopping("1d", "1h", "forever"), DefinitionError, "lookback"),
        (lambda: Continuous(5), DefinitionTypeError, "int 5"),
        (lambda: Tumbling("0s"), DefinitionError, "zero"),
    ],
)
@pytest.mark.spec("types:7.2:1", "types:7.2:2", "types:7.2:3", "types:7.2:4", "types:7.1b:7")
def test_windows_are_checked_when_made(make: Callable[[], object], error: type[Exception], fact: str) -> None:
    with pytest.raises(error, match=fact):
        make()
