"""The decision which assets a plan uses, and which entries the ledger needs: pure functions on plain data.

The asset store has one asset for each content that a branch needs. `allocate` finds or creates the assets of a plan;
`settle` compares the existing assets with those that branches refer to, and decides what has to be created and
destroyed.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from caraway.state.blueprints import FIRST_GENERATION, AssetKind, Blueprint, id_of


class AssetState(StrEnum):
    """The state of an asset in its life. From `destroying` an asset can only become `gone`."""

    PLANNED = "planned"
    CREATING = "creating"
    BACKFILLING = "backfilling"
    READY = "ready"
    FAILING = "failing"
    DESTROYING = "destroying"
    GONE = "gone"


# A branch may begin to use an asset in any state but these.
ENDING = frozenset({AssetState.DESTROYING, AssetState.GONE})


class Action(StrEnum):
    """The action that an entry of the ledger asks for."""

    CREATE = "create"
    DESTROY = "destroy"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asset:
    """A topic, job or index. `requires` are the ids of the assets that must exist before this one and as long as it."""

    id: str
    kind: AssetKind
    content: str
    generation: int
    dataset: str
    state: AssetState
    requires: tuple[str, ...]

    @property
    def name(self) -> str:
        """The name of the topic or job; of an index, its hash in hexadecimal."""
        return self.id.partition(":")[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """The assets of a plan. `created` are the new ones; `condemned` are old ones that must be destroyed at once."""

    assets: tuple[Asset, ...]
    created: tuple[Asset, ...]
    condemned: tuple[Asset, ...]

    @property
    def generations(self) -> Mapping[str, int]:
        """The generations of contents beyond their first (see `caraway.state.blueprints.apply_generations`)."""
        return {asset.content: asset.generation for asset in self.assets if asset.generation > FIRST_GENERATION}


def allocate(wanted: Sequence[Blueprint], existing: Iterable[Asset]) -> Allocation:
    """Choose an asset for each blueprint among the `existing` ones, or create one.

    An asset may be reused if it isn't being destroyed, and if every asset that it requires and every job that writes
    to it is reused too: a topic whose job is being destroyed might miss rows that the job would still have written.

    Each of the blueprints (`wanted`) comes after those that it requires; `existing` are all assets ever created.
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
    """Return the contents whose assets may be reused: the greatest set with all that its members need."""
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
    """The ledger entries that must be closed without having been done, and those that must be opened."""

    cancel: frozenset[str]
    open: Mapping[str, Action]


def settle(existing: Iterable[Asset], referenced: Collection[str], entries: Mapping[str, Action]) -> Settlement:
    """Return which entries the ledger must close and open.

    `referenced` are the ids of the assets that a branch refers to, and `entries` the open entries by their assets' ids.
    """
    wanted = {asset.id: action for asset in existing if (action := _due(asset, asset.id in referenced)) is not None}
    return Settlement(
        cancel=frozenset(name for name, action in entries.items() if wanted.get(name) is not action),
        open={name: action for name, action in wanted.items() if entries.get(name) is not action},
    )


def _due(asset: Asset, is_referenced: bool) -> Action | None:  # noqa: FBT001 (passed by position)
    if asset.state is AssetState.GONE or (is_referenced and asset.state is AssetState.READY):
        return None
    return Action.CREATE if is_referenced and asset.state is not AssetState.DESTROYING else Action.DESTROY
