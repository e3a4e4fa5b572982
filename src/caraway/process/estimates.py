"""Estimated durations, as people are told of them."""


def duration(seconds: float) -> str:
    """Return a duration as text, in one number."""
    for name, length in (("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"about {seconds / length:.0f} {name}"
    return f"about {max(seconds, 1):.0f} s"
