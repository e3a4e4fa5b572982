"""The worker of the ledger: it claims and does actions, which make or destroy topics, jobs and indexes."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

import structlog

from caraway.errors import CarawayError
from caraway.state.allocation import Action
from caraway.state.blueprints import AssetKind
from caraway.state.ledger import ActionOutcome, Claim, Closed, Ledger

LOG = structlog.get_logger(__name__)


class AssetWorld(Protocol):
    """The place where assets exist (`caraway.apps.server.control.world.Deployed`).

    Several workers may repeat an action, and an action takes some seconds at most. It raises `CarawayError` if it
    fails; it is tried again later.
    """

    def create(self, kind: AssetKind, names: Sequence[str]) -> Mapping[str, str]:
        """Create assets that don't exist; return what each still waits for, "" if it is ready."""

    def destroy(self, kind: AssetKind, names: Sequence[str]) -> Mapping[str, str]:
        """Remove assets if they exist; return what each removal still waits for, "" if nothing is left."""


def step(ledger: Ledger, world: AssetWorld, most: int) -> int:
    """Do at most `most` actions that are due, all of one kind; return their number.

    Raises `UnavailableError` if Postgres doesn't answer.
    """
    claims = ledger.claims(most)
    if claims:
        for lost in ledger.close_all(perform(claims, world)):
            LOG.info("another worker has taken over this entry of the ledger", asset=lost.asset_id, action=lost.action)
    return len(claims)


def perform(claims: Sequence[Claim], world: AssetWorld) -> list[Closed]:
    """Do one action with the assets of some entries, and return the outcomes; an error is an outcome, and isn't raised.

    If the action fails for some assets at once, it is tried with each of them, so that one asset doesn't stop others.
    """
    first = claims[0]
    do = world.create if first.action is Action.CREATE else world.destroy
    names = [claim.name for claim in claims]
    try:
        missing = do(first.kind, names)
    except CarawayError as error:
        reason = str(error)
        LOG.warning("entries of the ledger failed", kind=first.kind, names=names, action=first.action, reason=reason)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        LOG.exception("entries of the ledger failed", kind=first.kind, names=names, action=first.action)
    else:
        return [
            Closed(claim, ActionOutcome.WAITING if missing[claim.name] else ActionOutcome.DONE, missing[claim.name])
            for claim in claims
        ]
    if len(claims) > 1:
        return [closed for claim in claims for closed in perform([claim], world)]
    return [Closed(first, ActionOutcome.FAILED, reason)]


def work(ledger: Ledger, world: AssetWorld, *, limit: int) -> bool:
    """Do at most `limit` due actions, and switch branches whose head is ready; return whether anything changed.

    Raises `UnavailableError` if Postgres doesn't answer.
    """
    left = limit
    while left > 0 and (done := step(ledger, world, left)):
        left -= done
    return bool(ledger.promote()) or left < limit


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
