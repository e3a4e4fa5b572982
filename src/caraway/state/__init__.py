"""What must outlive every process: commits and the job registry, in Postgres.

`StateReader` reads, `StateWriter` writes, `JobRegistry` is the engine's view; `migrate` brings the schema to this
version.
"""

from caraway.state.database import connect
from caraway.state.migrate import is_migrated, migrate, wait_until_migrated
from caraway.state.model import MAIN, CommitRecord, DesiredState, Head, JobRecord, JobState, NewCommit
from caraway.state.reader import StateReader
from caraway.state.registry import JobRegistry
from caraway.state.writer import StateWriter

__all__ = [
    "MAIN",
    "CommitRecord",
    "DesiredState",
    "Head",
    "JobRecord",
    "JobRegistry",
    "JobState",
    "NewCommit",
    "StateReader",
    "StateWriter",
    "connect",
    "is_migrated",
    "migrate",
    "wait_until_migrated",
]
