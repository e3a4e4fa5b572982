"""The handling of unreadable checkpoints: each is reported and put aside, and its job begins anew.

No data is lost by that as long as the topics hold their history: a job that begins at the beginning sends the same
records again, with the same identities and revisions, so they replace those that it has sent before. It only takes
time.
"""

import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from caraway.dataplane.streams.engine.jobs import brief
from caraway.errors import UnavailableError

# The error messages of damaged checkpoints contain one of these parts. Their sources are Spark's logs of offsets and
# commits (JSON and versions), the checksums of Hadoop's local files, RocksDB's own checks, and truncated archives of
# state.
_SIGNS = re.compile(
    r"Incomplete log file|Failed to read log file|MALFORMED_LOG_FILE|Invalid OffsetMap format"
    r"|ChecksumException|CHECKSUM_VERIFICATION_FAILED|UNEXPECTED_EMPTY_FILE_IN_ROCKSDB_ZIP|MISSING_METADATA_FILE"
    r"|CANNOT_LOAD_STATE_STORE|EOFException|ZipException|Corruption:"
    r"|Unexpected end-of-input"
    r"|JsonParseException|JsonEOFException|MismatchedInputException|No content to map|org.json4s.*ParserUtil"
)
# The error messages of temporary problems, such as a full disk, contain one of these parts. Such a problem may also
# cause a message of `_SIGNS`. The checkpoint isn't damaged then, so the job continues with it.
_OTHER = re.compile(
    r"No space left on device|Disk quota exceeded|OUT_OF_MEMORY|OutOfMemory|UNRELEASED_THREAD|Interrupt"
    r"|apache.kafka.*Exception"
)
# The suffix of the folder of a checkpoint that was put aside.
DAMAGED = ".damaged"


@contextmanager
def repairing(checkpoint: Path) -> Iterator[None]:
    """Put a checkpoint aside if the body of the context fails because the checkpoint can't be read.

    Raises `UnavailableError` if the checkpoint couldn't be read, and was put aside.
    """
    try:
        yield
    except Exception as error:
        text = str(error)
        if not is_damage(text):
            raise
        raise UnavailableError(put_aside(checkpoint, brief(text))) from error


def is_damage(error: str, causes: Sequence[str] = ()) -> bool:
    """Return whether a job failed because its checkpoint can't be read."""
    return _SIGNS.search(error) is not None and not any(_OTHER.search(text) for text in (error, *causes))


def put_aside(checkpoint: Path, error: str, *, because: str = "is damaged") -> str:
    """Move a checkpoint away, so that the job begins anew, and return the text to report; only the newest is kept."""
    aside = checkpoint.with_name(checkpoint.name + DAMAGED)
    shutil.rmtree(aside, ignore_errors=True)
    if checkpoint.exists():
        checkpoint.rename(aside)
    return (
        f"its checkpoint {because} and was put aside as {aside}; the job begins at the beginning of its topics, which "
        f"gives the same rows again: {error}"
    )
