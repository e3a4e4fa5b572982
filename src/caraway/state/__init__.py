"""The durable state of the control plane in Postgres: commits, assets, jobs, access.

`StateReader` reads, `StateWriter` writes, `JobRegistry` is the engines' view; `migrate` brings the schema to this
version. Everything here that reads or writes raises `UnavailableError` if Postgres doesn't answer; docstrings mention
that error only where there is more to say.
"""

from caraway.state.access import Access, AccessList, TokenOwner, TokenRecord
from caraway.state.allocation import Action, Asset, AssetState
from caraway.state.audit import Act, AuditLog, AuditRecord
from caraway.state.blueprints import AssetKind, apply_generations, blueprints
from caraway.state.branches import Branches
from caraway.state.clock import KEEP, wall_clock
from caraway.state.database import connect
from caraway.state.ledger import ActionOutcome, Claim, Ledger
from caraway.state.migrate import is_migrated, migrate, wait_until_migrated
from caraway.state.model import (
    MAIN,
    BranchHeads,
    BranchRecord,
    CommitRecord,
    DesiredState,
    Head,
    JobRecord,
    JobState,
    LedgerEntry,
    NewCommit,
    Role,
)
from caraway.state.permissions import ANYBODY, Caller, Grant, Mode
from caraway.state.plans import Needed, Planned, Plans
from caraway.state.reader import StateReader
from caraway.state.registry import JobRegistry
from caraway.state.replays import ReplayClaim, Replays
from caraway.state.writer import StateWriter

__all__ = [
    "ANYBODY",
    "KEEP",
    "MAIN",
    "Access",
    "AccessList",
    "Act",
    "Action",
    "ActionOutcome",
    "Asset",
    "AssetKind",
    "AssetState",
    "AuditLog",
    "AuditRecord",
    "BranchHeads",
    "BranchRecord",
    "Branches",
    "Caller",
    "Claim",
    "CommitRecord",
    "DesiredState",
    "Grant",
    "Head",
    "JobRecord",
    "JobRegistry",
    "JobState",
    "Ledger",
    "LedgerEntry",
    "Mode",
    "Needed",
    "NewCommit",
    "Planned",
    "Plans",
    "ReplayClaim",
    "Replays",
    "Role",
    "StateReader",
    "StateWriter",
    "TokenOwner",
    "TokenRecord",
    "apply_generations",
    "blueprints",
    "connect",
    "is_migrated",
    "migrate",
    "wait_until_migrated",
    "wall_clock",
]
