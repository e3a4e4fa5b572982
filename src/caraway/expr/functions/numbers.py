"""Constants and functions of the `num` namespace that both the polars and the plain Python compiler use."""

from caraway.dtypes.values import INT_MAX
from caraway.errors import InvalidInputError

# From this value on every double is an integer, so rounding doesn't change it.
ALL_INTEGERS = 2.0**52
# Rounding to n decimals multiplies by 10**n, which is infinite from n = 309 on. So rounding to more decimals than this
# returns the double as it is.
MOST_DECIMALS = 300


def power_of_ints(base: int, exponent: int) -> int:
    """Return an int raised to a power, wrapped around to 64 bits; a negative exponent is refused."""
    if exponent < 0:
        raise InvalidInputError(
            f"num.pow(): {base} to the power of {exponent} is no int; make the base or the exponent a float"
        )
    power = pow(base, exponent, 2**64)
    return power if power <= INT_MAX else power - 2**64
