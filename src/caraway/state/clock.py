"""The clock of the state, and the time for which unneeded assets are kept."""

from datetime import UTC, datetime, timedelta

# An asset that no branch needs any more isn't destroyed for this long, so that a rollback finds it with all its data.
KEEP = timedelta(hours=1)


def wall_clock() -> datetime:
    """Return the time of this machine."""
    return datetime.now(UTC)
