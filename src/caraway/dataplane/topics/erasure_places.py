"""The names of the places that an erasure reaches one after the other, as the record of erasures has them."""

# The tables of the archive have no row of the key any more. Files that had such rows are kept for a while for readers.
ARCHIVE = "archive"
# The files that had rows of the key are removed from the archive.
ARCHIVE_FILES = "files of the archive"
# No record of the key can be read from the dataset's topic any more.
TOPIC = "topic"
# Everything that was computed from the erased rows is being computed again, without them.
RECOMPUTATION = "recomputation"
# All data that were computed from the erased rows are destroyed, and branches use the data that were computed again
# without these rows.
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
