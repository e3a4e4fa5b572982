"""Estimated durations and counts, as people are told of them."""


def counted(count: int, what: str) -> str:
    """Return a count with its noun, such as "1 row" or "2,000 rows"."""
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def duration(seconds: float) -> str:
    """Return a duration as text, in one number."""
    for name, length in (("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"about {seconds / length:.0f} {name}"
    return f"about {max(seconds, 1):.0f} s"
