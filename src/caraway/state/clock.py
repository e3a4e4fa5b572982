"""What time it is, and how long things are kept."""

from datetime import UTC, datetime, timedelta

# What no branch needs any more isn't destroyed at once: within this time a rollback finds it with all its data.
KEEP = timedelta(hours=1)


def wall_clock() -> datetime:
    """Return the time of this machine."""
    return datetime.now(UTC)
