"""The worker of the ledger: it claims and does one action (make or destroy a topic, job or index) after the other."""

from collections.abc import Callable, Collection
from itertools import takewhile
from typing import Protocol

import structlog

from caraway.errors import CarawayError
from caraway.state.allocation import Action
from caraway.state.blueprints import AssetKind
from caraway.state.ledger import ActionOutcome, Claim, Ledger

LOG = structlog.get_logger(__name__)


class AssetWorld(Protocol):
    """The place where assets exist (`caraway.control.world.Deployed`).

    Several workers may repeat an action, and an action takes some seconds at most. It raises `CarawayError` if it
    fails; it is tried again later.
    """

    def create(self, kind: AssetKind, name: str) -> str:
        """Create an asset that doesn't exist; return what it still waits for, "" if it is ready."""

    def destroy(self, kind: AssetKind, name: str) -> str:
        """Remove an asset if it exists; return what the removal still waits for, "" if nothing is left."""


def step(ledger: Ledger, world: AssetWorld) -> bool:
    """Do one action that is due; return False if none is. Raises `UnavailableError` if Postgres doesn't answer."""
    claim = ledger.claim()
    if claim is None:
        return False
    outcome, reason = perform(claim, world)
    if not ledger.close(claim, outcome, reason):
        LOG.info("another worker has taken over this entry of the ledger", asset=claim.asset_id, action=claim.action)
    return True


def perform(claim: Claim, world: AssetWorld) -> tuple[ActionOutcome, str]:
    """Do the action of an entry, and return its outcome; an error is an outcome, too, and isn't raised."""
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
    """Do at most `limit` due actions, and switch branches whose head is ready; return whether anything changed.

    Raises `UnavailableError` if Postgres doesn't answer.
    """
    done = sum(1 for _ in takewhile(bool, (step(ledger, world) for _ in range(limit))))
    return bool(ledger.promote()) or done > 0


def sweep(ledger: Ledger, topics: Collection[str], drop: Callable[[Collection[str]], None]) -> frozenset[str]:
    """Remove topics that exist although their asset is gone, and return their names.

    A worker that was delayed for long may have created such a topic again after its destruction. A gone asset's name is
    never used again, so nothing can be lost. Raises `UnavailableError` if Postgres or Kafka doesn't answer.
    """
    left = ledger.gone(AssetKind.TOPIC) & frozenset(topics)
    if left:
        LOG.info("removing topics that exist again after their destruction", topics=sorted(left))
        drop(left)
    return left
