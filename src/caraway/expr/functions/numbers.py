"""Definitions that the compilers share for the `num` namespace; nothing here needs polars."""

from caraway.dtypes.values import INT_MAX
from caraway.errors import InvalidInputError

# From this value on every double is an integer, so rounding doesn't change it.
ALL_INTEGERS = 2.0**52
# Bound on decimals, which is more than a double can have, while ten to this power still is a double.
MOST_DECIMALS = 300


def power_of_ints(base: int, exponent: int) -> int:
    """Raise an int to a power, in 64 bits. Raises `InvalidInputError` if the exponent is negative."""
    if exponent < 0:
        raise InvalidInputError(
            f"num.pow(): {base} to the power of {exponent} is no int; make the base or the exponent a float"
        )
    power = pow(base, exponent, 2**64)
    return power if power <= INT_MAX else power - 2**64
