import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from caraway.errors import InvalidInputError
from caraway.expr.functions.chrono_format import COMPOSITES, DIRECTIVES, NUMBERS, SIGNS
from caraway.expr.functions.chrono_writing import writer

# Instants for which the tables of time zones agree.
INSTANTS = st.integers(0, 4_102_444_800_000_000 - 1)
ZONES = ["UTC", "America/New_York", "Asia/Kathmandu", "US/Eastern", "Africa/Monrovia", "Australia/Lord_Howe"]
ALL = sorted(
    [f"%{name}" for name in (*DIRECTIVES, *COMPOSITES, *SIGNS)] + [f"%{pad}{name}" for pad in "-_0" for name in NUMBERS]
)


@pytest.mark.spec("types:12.3:9")
@given(
    us=st.lists(INSTANTS, min_size=1, max_size=3),
    zone=st.sampled_from(ZONES),
    directives=st.lists(st.sampled_from(ALL), min_size=1, max_size=6),
)
@example(us=[0, 1, 1_000, 1_000_000, 1_609_466_584_567_891], zone="Africa/Monrovia", directives=ALL)
def test_we_write_what_chrono_writes(us: list[int], zone: str, directives: list[str]) -> None:
    """Compare with polars, which writes with chrono itself."""
    text = "|".join(directives)
    instants = pl.Series(us, dtype=pl.Int64).cast(pl.Datetime("us", "UTC")).dt.convert_time_zone(zone)
    assert [writer(text, zone)(value) for value in us] == instants.dt.strftime(text).to_list()


@pytest.mark.parametrize("us", [2**62, -(2**62), 253_402_300_800_000_000])
def test_years_beyond_the_calendar(us: int) -> None:
    with pytest.raises(InvalidInputError, match="outside of the years 1 to 9999"):
        writer("%Y", "UTC")(us)
    assert writer("%F", "UTC")(-62_135_596_800_000_000) == "0001-01-01"
