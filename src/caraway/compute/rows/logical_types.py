"""Conversions of the plain numbers and bytes by which Avro, Kafka Connect and Debezium write instants and decimals."""

from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FIRST_DAY = date(1970, 1, 1)
MICROSECONDS = 1_000_000
# The digits of a decimal may have at most this many bytes, which are enough for 154 digits. Databases have up to 76
# digits, and converting very many to a decimal number takes seconds.
MAX_DECIMAL_BYTES = 64
# The scale of a decimal may add at most this many digits before or after the point.
MAX_SCALE = 10_000
_EXACT = Context(prec=MAX_SCALE * 2)


def instant(value: int, per_second: int) -> datetime:
    """Return the instant that is `value` units since the epoch; parts of microseconds are cut off.

    Raises `OverflowError` if it isn't in the years 1 to 9999.
    """
    return EPOCH + timedelta(microseconds=value * MICROSECONDS // per_second)


def day(value: int) -> date:
    """Return the day that is `value` days after the first of January 1970.

    Raises `OverflowError` if it isn't in the years 1 to 9999.
    """
    return FIRST_DAY + timedelta(days=value)


def time_of_day(value: int, per_second: int) -> str:
    """Return a time of day as HH:MM:SS, with microseconds if it has any.

    MySQL's times may also be negative, or have more than 24 hours.
    """
    seconds, rest = divmod(abs(value) * MICROSECONDS // per_second, MICROSECONDS)
    shown = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return ("-" if value < 0 else "") + (f"{shown}.{rest:06}" if rest else shown)


def decimal(digits: bytes, scale: int) -> Decimal:
    """Return the decimal whose digits, as a whole number, are big-endian in two's complement.

    Raises `ValueError` if it has too many digits.
    """
    if len(digits) > MAX_DECIMAL_BYTES or abs(scale) > MAX_SCALE:
        raise ValueError(f"a decimal of {len(digits):,} bytes with the scale {scale}")
    return Decimal(int.from_bytes(digits, "big", signed=True)).scaleb(-scale, _EXACT)
