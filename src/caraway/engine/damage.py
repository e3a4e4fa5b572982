"""Checkpoints that can't be read any more: told, put aside, and begun anew.

Nothing is lost by that as long as the topics hold their history: a job that begins at the beginning sends the same
records again, with the same ids and revisions. Only the time that it takes is.
"""

import re
import shutil
from pathlib import Path

# What Spark says of torn files: its logs' JSON and versions, checksums of Hadoop's local files, RocksDB's own checks,
# archives of state without an end.
_SIGNS = re.compile(
    r"Incomplete log file|malformed|Log file was malformed|ChecksumException|Checksum error|Corruption|EOFException"
    r"|Unexpected end|CANNOT_LOAD_STATE_STORE|FAILED_TO_READ|JsonParseException|JsonEOFException|MismatchedInput"
    r"|No content to map|ZipException|Failed to read log file|UnsupportedLogVersion|Cannot find or open file"
    r"|Failed to read streaming state|SCHEMA_FILES?_|INVALID_CHANGE_LOG"
)
# A disk that is full, or a broker that is away, may show in the same places.
_OTHER = re.compile(r"No space left on device|Disk quota exceeded|TimeoutException|KafkaException")
_ASIDE = ".damaged"


def is_damage(error: str) -> bool:
    """Tell whether a job failed because its checkpoint can't be read."""
    return _SIGNS.search(error) is not None and _OTHER.search(error) is None


def put_aside(checkpoint: Path, error: str) -> str:
    """Move a checkpoint away, so that the job begins anew, and return what to tell; the last such one is kept."""
    aside = checkpoint.with_name(checkpoint.name + _ASIDE)
    shutil.rmtree(aside, ignore_errors=True)
    if checkpoint.exists():
        checkpoint.rename(aside)
    return (
        f"its checkpoint is damaged and was put aside as {aside}; the job begins at the beginning of its topics, which "
        f"gives the same rows again: {error}"
    )
