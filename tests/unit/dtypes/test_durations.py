import pytest
from hypothesis import given
from hypothesis import strategies as st

from caraway.dtypes.durations import US_PER_UNIT, parse_duration, print_duration
from caraway.errors import DefinitionError, DefinitionTypeError

ITEMS = st.lists(st.tuples(st.integers(0, 1000), st.sampled_from("ywdhms")), min_size=1, max_size=4)


@pytest.mark.spec("types:7.1:4", "types:7.1b:2")
@given(items=ITEMS, blank=st.sampled_from(["", " ", "  "]))
def test_items_are_added_up(items: list[tuple[int, str]], blank: str) -> None:
    text = blank.join(f"{number}{blank}{unit}" for number, unit in items)
    assert parse_duration(text) == sum(number * US_PER_UNIT[unit] for number, unit in items)


@given(text=st.text(alphabet="0123456789. ywdhmsxM-", max_size=8))
def test_any_text_is_a_duration_or_a_clear_error(text: str) -> None:
    try:
        assert parse_duration(text) >= 0
    except (DefinitionError, DefinitionTypeError) as error:
        assert text in str(error)  # noqa: PT017 (either outcome is right)


@pytest.mark.spec(
    "types:7.1b:2", "types:7.1b:6", "types:7.1:1", "types:7.1:2", "types:7.1:3", "types:7.1:5", "types:7.1:6"
)
@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1.5h", 5400),
        (".5d", 43_200),
        ("2d 4h", 187_200),
        ("1y", 31_536_000),
        ("1m", 60),
        ("0s", 0),
        ("1w", 604_800),
        ("3d", 259_200),
        ("7s", 7),
        ("1 h", 3600),
    ],
)
def test_lengths(text: str, seconds: int) -> None:
    assert parse_duration(text) == seconds * 1_000_000


@pytest.mark.parametrize("wrong", ["", "1 2h", ".h", "1D", "1e3s", "5ms", "1,000s", "+1d", "1H"])
@pytest.mark.spec("types:7.1b:1", "types:7.1b:4", "types:7.1b:5", "types:7.1b:7")
def test_d4_d5_other_text_is_a_value_error(wrong: str) -> None:
    with pytest.raises(DefinitionError):
        parse_duration(wrong)


@given(st.integers(0, 10**17))
def test_what_is_printed_is_read_back(duration_us: int) -> None:
    assert parse_duration(print_duration(duration_us)) == duration_us


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (60, "1m"), (5400, "1h 30m"), (604_800, "7d"), (0.5, "0.5s"), (90_061, "1d 1h 1m 1s")],
)
def test_durations_are_spelled_as_users_write_them(seconds: float, text: str) -> None:
    assert print_duration(round(seconds * 1_000_000)) == text
