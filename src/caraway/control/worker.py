"""Working off the ledger, step by step: what the commits want becomes so."""

from collections.abc import Callable, Collection
from itertools import takewhile
from typing import Protocol

import structlog

from caraway.errors import CarawayError
from caraway.state import Action, ActionOutcome, AssetKind, Claim, Ledger

LOG = structlog.get_logger(__name__)


class AssetWorld(Protocol):
    """Where assets are. Each action may be done again, by several workers at once; each takes some seconds at most."""

    def create(self, kind: AssetKind, name: str) -> str:
        """Make an asset if it isn't there; return what it still waits for, "" if it is ready.

        Raises:
            CarawayError: It didn't work; it is tried again later.
        """

    def destroy(self, kind: AssetKind, name: str) -> str:
        """Remove an asset if it is there; return what that still waits for, "" if nothing is left.

        Raises:
            CarawayError: It didn't work; it is tried again later.
        """


def step(ledger: Ledger, world: AssetWorld) -> bool:
    """Do one thing that is due; False if nothing is.

    Raises:
        UnavailableError: Postgres doesn't answer.
    """
    claim = ledger.claim()
    if claim is None:
        return False
    outcome, reason = perform(claim, world)
    if not ledger.close(claim, outcome, reason):
        LOG.info("somebody else has taken over", asset=claim.asset_id, action=claim.action)
    return True


def perform(claim: Claim, world: AssetWorld) -> tuple[ActionOutcome, str]:
    """Do what an entry asks for, and return how it went; an error is no reason to end."""
    do = world.create if claim.action is Action.CREATE else world.destroy
    try:
        missing = do(claim.kind, claim.name)
    except CarawayError as error:
        LOG.warning("an entry of the ledger failed", asset=claim.asset_id, action=claim.action, reason=str(error))
        return ActionOutcome.FAILED, str(error)
    except Exception as error:
        LOG.exception("an entry of the ledger failed", asset=claim.asset_id, action=claim.action)
        return ActionOutcome.FAILED, f"{type(error).__name__}: {error}"
    return (ActionOutcome.WAITING, missing) if missing else (ActionOutcome.DONE, "")


def work(ledger: Ledger, world: AssetWorld, *, limit: int) -> bool:
    """Do what is due, at most `limit` things, and let branches serve what is ready; True if anything changed.

    Raises:
        UnavailableError: Postgres doesn't answer.
    """
    done = sum(1 for _ in takewhile(bool, (step(ledger, world) for _ in range(limit))))
    return bool(ledger.promote()) or done > 0


def sweep(ledger: Ledger, topics: Collection[str], drop: Callable[[Collection[str]], None]) -> frozenset[str]:
    """Remove topics that are there although their asset is gone, and return their names.

    A worker that was delayed for long may have made one again after all was over; an asset that is gone never comes
    back under its name, so nothing can be lost.

    Raises:
        UnavailableError: Postgres or Kafka doesn't answer.
    """
    left = ledger.gone(AssetKind.TOPIC) & frozenset(topics)
    if left:
        LOG.info("removing topics that are there again", topics=sorted(left))
        drop(left)
    return left
