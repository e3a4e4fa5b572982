"""The names of the places that an erasure reaches one after the other, as the record of erasures has them."""

# The tables of the archive have no row of the key any more. The files that had some are kept for readers for a while.
ARCHIVE = "archive"
# The files that had rows of the key are removed from the archive.
ARCHIVE_FILES = "files of the archive"
# No record of the key can be read from the dataset's topic any more.
TOPIC = "topic"
# Everything that was computed from the erased rows is being computed again, without them.
RECOMPUTATION = "recomputation"
# Everything that was computed from the erased rows is destroyed, and branches use what was computed without them.
DERIVED = "derived data"
# The topic of dead letters has no row of the key any more.
DEAD_LETTERS_PLACE = "dead letters"
# The table of served features and their topic have no row of the key any more.
SERVED_PLACE = "served features"


def index_of(member: str) -> str:
    """Return the name of the dataset's own index on a server."""
    return f"index of {member}"


def index_files_of(member: str) -> str:
    """Return the name of the files on a server of indexes that were computed from the rows, with their snapshots."""
    return f"index files of {member}"
