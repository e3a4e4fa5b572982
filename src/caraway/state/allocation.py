"""What must happen to the assets, decided by pure functions on plain data.

The asset store holds one asset for each content that is wanted by any branch. `allocate` finds or makes the assets of
a plan, `settle` compares what is there with what is referred to.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from caraway.state.blueprints import FIRST_GENERATION, AssetKind, Blueprint, id_of


class AssetState(StrEnum):
    """Where an asset is in its life. The way from `destroying` leads to `gone` only."""

    PLANNED = "planned"
    CREATING = "creating"
    BACKFILLING = "backfilling"
    READY = "ready"
    FAILING = "failing"
    DESTROYING = "destroying"
    GONE = "gone"


# An asset in any other state may serve a further branch.
ENDING = frozenset({AssetState.DESTROYING, AssetState.GONE})


class Action(StrEnum):
    """An entry of the ledger asks for one of these."""

    CREATE = "create"
    DESTROY = "destroy"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asset:
    """A physical thing. `id` names it, `requires` are the ids of those that it stands on."""

    id: str
    kind: AssetKind
    content: str
    generation: int
    dataset: str
    state: AssetState
    requires: tuple[str, ...]

    @property
    def name(self) -> str:
        """The name of the topic, of the job, of the index (hexadecimal)."""
        return self.id.partition(":")[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """The assets of a plan: `assets` are all of them, `created` those that are new, `condemned` must go at once."""

    assets: tuple[Asset, ...]
    created: tuple[Asset, ...]
    condemned: tuple[Asset, ...]

    @property
    def generations(self) -> Mapping[str, int]:
        """Contents that aren't in their first generation (see `caraway.state.blueprints.apply_generations`)."""
        return {asset.content: asset.generation for asset in self.assets if asset.generation > FIRST_GENERATION}


def allocate(wanted: Sequence[Blueprint], existing: Iterable[Asset]) -> Allocation:
    """Find an asset for each blueprint among the `existing` ones, or make one.

    An asset may be used again if it isn't being destroyed, and if all that it stands on and all that fills it is used
    again too: a topic whose job is being destroyed might miss what that job would still have written.

    Args:
        wanted: The pieces of a plan, each after those that it requires.
        existing: All assets that there ever were.
    """
    newest: dict[str, Asset] = {}
    for asset in existing:
        if asset.content not in newest or asset.generation > newest[asset.content].generation:
            newest[asset.content] = asset
    usable = _usable(wanted, {content: asset for content, asset in newest.items() if asset.state not in ENDING})
    assets: dict[str, Asset] = {}
    for blueprint in wanted:
        known = newest.get(blueprint.content)
        if known is not None and blueprint.content in usable:
            assets[blueprint.content] = known
            continue
        generation = FIRST_GENERATION if known is None else known.generation + 1
        assets[blueprint.content] = Asset(
            id=id_of(blueprint.kind, blueprint.name, generation),
            kind=blueprint.kind,
            content=blueprint.content,
            generation=generation,
            dataset=blueprint.dataset,
            state=AssetState.PLANNED,
            requires=tuple(assets[content].id for content in blueprint.requires),
        )
    return Allocation(
        assets=tuple(assets.values()),
        created=tuple(asset for content, asset in assets.items() if content not in usable),
        condemned=tuple(
            newest[content]
            for content in assets
            if content in newest and content not in usable and newest[content].state not in ENDING
        ),
    )


def _usable(wanted: Sequence[Blueprint], existing: Mapping[str, Asset]) -> frozenset[str]:
    """Return the contents whose assets may be used again: the greatest set that is closed under what they need."""
    needs: dict[str, set[str]] = {blueprint.content: {*blueprint.requires} for blueprint in wanted}
    for blueprint in wanted:
        for written in blueprint.writes:
            needs[written].add(blueprint.content)
    usable = {blueprint.content for blueprint in wanted if blueprint.content in existing}
    while lost := {content for content in usable if not needs[content] <= usable}:
        usable -= lost
    return frozenset(usable)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settlement:
    """What must change in the ledgers: entries to be closed without having been done, and to be opened."""

    cancel: frozenset[str]
    open: Mapping[str, Action]


def settle(existing: Iterable[Asset], referenced: Collection[str], entries: Mapping[str, Action]) -> Settlement:
    """Say which entries the ledgers must have.

    Args:
        existing: All assets.
        referenced: Ids of those that a branch refers to.
        entries: The open entries, by id of the asset.
    """
    wanted = {asset.id: action for asset in existing if (action := _due(asset, asset.id in referenced)) is not None}
    return Settlement(
        cancel=frozenset(name for name, action in entries.items() if wanted.get(name) is not action),
        open={name: action for name, action in wanted.items() if entries.get(name) is not action},
    )


def _due(asset: Asset, is_referenced: bool) -> Action | None:  # noqa: FBT001 (one of two, by position)
    if asset.state is AssetState.GONE or (is_referenced and asset.state is AssetState.READY):
        return None
    return Action.CREATE if is_referenced and asset.state is not AssetState.DESTROYING else Action.DESTROY
