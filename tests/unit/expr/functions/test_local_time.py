from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caraway.errors import InvalidInputError
from caraway.expr.functions.local_time import local_instant, time_zone

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ZONES = st.sampled_from(["America/New_York", "Australia/Lord_Howe", "Europe/Dublin", "Asia/Tehran", "EST", "UTC"])
# Quarters of an hour, so that some are at changes of clocks.
WALLS = st.integers(0, 80 * 365 * 96).map(
    lambda quarters: datetime.fromtimestamp(quarters * 900, UTC).replace(tzinfo=None)
)


@given(wall=WALLS, zone=ZONES)
def test_an_instant_is_the_only_one_at_which_clocks_show_the_time(wall: datetime, zone: str) -> None:
    """Compare with a plain search through all instants near by."""
    offsets = range(-15 * 4, 15 * 4)
    around = [int((wall.replace(tzinfo=UTC) - EPOCH).total_seconds()) + 900 * offset for offset in offsets]
    shown = [at for at in around if datetime.fromtimestamp(at, time_zone(zone)).replace(tzinfo=None) == wall]
    if len(shown) == 1:
        assert local_instant(wall, zone) == shown[0] * 1_000_000
    else:
        with pytest.raises(InvalidInputError, match="is ambiguous" if shown else "does not exist"):
            local_instant(wall, zone)
