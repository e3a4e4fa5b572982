"""The decision which assets a plan uses, and which entries the ledger needs: pure functions on plain data.

Branches with equal contents share one asset. An asset that no branch needs any more keeps its data for a while, and is
given back to a rollback only; any other commit with the same content gets a new one. `allocate` finds or creates the
assets of a plan; `settle` compares the existing assets with those that branches refer to, and decides what has to be
created and destroyed.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from caraway.state.blueprints import EMITS, FIRST_GENERATION, AssetKind, Blueprint, id_of


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
    """The assets of a plan.

    `created` are the new ones; `condemned` are old ones that lack a part, so that nobody can use them again.
    """

    assets: tuple[Asset, ...]
    created: tuple[Asset, ...]
    condemned: tuple[Asset, ...]

    def shared(self, branch: str, references: Mapping[str, Collection[str]]) -> Mapping[str, Collection[str]]:
        """Return the ids of the assets that only other branches have so far, with these branches.

        `references` are the branches that refer to each asset.
        """
        return {a.id: held for a in self.assets if (held := references.get(a.id, ())) and branch not in held}

    @property
    def created_names(self) -> frozenset[str]:
        """The names of the new assets. That of an index that emits rows lacks the name of the topic that it writes."""
        return frozenset(asset.name.partition(EMITS)[0] for asset in self.created)

    @property
    def generations(self) -> Mapping[str, int]:
        """The generations of contents beyond their first (see `caraway.state.blueprints.apply_generations`)."""
        return {asset.content: asset.generation for asset in self.assets if asset.generation > FIRST_GENERATION}


def allocate(
    wanted: Sequence[Blueprint], existing: Iterable[Asset], offered: Sequence[Collection[str]] = ()
) -> Allocation:
    """Choose an asset for each blueprint among the `existing` ones that are `offered`, or create one.

    An asset may be reused if it isn't being destroyed, and if every asset that it requires and every job that writes
    to it is reused too: a topic whose job is being destroyed might miss rows that the job would still have written.

    Each of the blueprints (`wanted`) comes after those that it requires; `existing` are all assets ever created.
    `offered` are ids of assets that may be reused, in groups: of two assets with one content, the one of the earlier
    group is preferred, and within a group the newer one.
    """
    generations: dict[str, list[Asset]] = {blueprint.content: [] for blueprint in wanted}
    for asset in existing:
        if asset.content in generations:
            generations[asset.content].append(asset)
    intact = _intact(wanted, generations)
    candidates = {
        content: sorted(
            (asset for asset in assets if asset.id in intact and _rank(asset, offered) < len(offered)),
            key=lambda asset: (_rank(asset, offered), -asset.generation),
        )
        for content, assets in generations.items()
    }
    reused = _choose(wanted, candidates)
    assets: dict[str, Asset] = {}
    for blueprint in wanted:
        if blueprint.content in reused:
            assets[blueprint.content] = reused[blueprint.content]
            continue
        known = (asset.generation for asset in generations[blueprint.content])
        generation = max(known, default=FIRST_GENERATION - 1) + 1
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
        created=tuple(asset for content, asset in assets.items() if content not in reused),
        condemned=tuple(
            asset
            for assets in generations.values()
            for asset in assets
            if asset.state not in ENDING and asset.id not in intact
        ),
    )


def _rank(asset: Asset, offered: Sequence[Collection[str]]) -> int:
    """Return the number of the first group that has an asset, or the number of groups if none has it."""
    return next((rank for rank, group in enumerate(offered) if asset.id in group), len(offered))


def _needs(wanted: Sequence[Blueprint]) -> Mapping[str, tuple[frozenset[str], frozenset[str]]]:
    """Return, for each content, the contents that it requires and those that write to it."""
    writers: dict[str, set[str]] = {blueprint.content: set() for blueprint in wanted}
    for blueprint in wanted:
        for written in blueprint.writes:
            writers[written].add(blueprint.content)
    return {
        blueprint.content: (frozenset(blueprint.requires), frozenset(writers[blueprint.content]))
        for blueprint in wanted
    }


def _intact(wanted: Sequence[Blueprint], generations: Mapping[str, Sequence[Asset]]) -> frozenset[str]:
    """Return the ids of the living assets with all that they require and all that writes to them: the greatest set."""
    needs = _needs(wanted)
    left = {content: [a for a in assets if a.state not in ENDING] for content, assets in generations.items()}

    def whole(asset: Asset) -> bool:
        required, writers = needs[asset.content]
        return all(any(other.id in asset.requires for other in left[content]) for content in required) and all(
            any(asset.id in other.requires for other in left[content]) for content in writers
        )

    while lost := {asset.id for assets in left.values() for asset in assets if not whole(asset)}:
        left = {content: [a for a in assets if a.id not in lost] for content, assets in left.items()}
    return frozenset(asset.id for assets in left.values() for asset in assets)


def _choose(wanted: Sequence[Blueprint], candidates: Mapping[str, Sequence[Asset]]) -> Mapping[str, Asset]:
    """Return the asset to be reused for each content, as far as candidates fit together; the first ones are preferred.

    A candidate that doesn't fit the first candidates of the other contents is given up, until all that are left fit.
    """
    needs = _needs(wanted)
    left = {content: list(assets) for content, assets in candidates.items()}
    while True:
        chosen = {content: assets[0] for content, assets in left.items() if assets}
        fits = set(chosen)
        while lost := {content for content in fits if not _fits(chosen, fits, content, needs)}:
            fits -= lost
        if len(fits) == len(chosen):
            return chosen
        for content in chosen.keys() - fits:
            del left[content][0]


def _fits(
    chosen: Mapping[str, Asset],
    fits: Collection[str],
    content: str,
    needs: Mapping[str, tuple[frozenset[str], frozenset[str]]],
) -> bool:
    """Return whether the asset chosen for a content requires the chosen assets, and is written to by them."""
    required, writers = needs[content]
    asset = chosen[content]
    return all(other in fits and chosen[other].id in asset.requires for other in required) and all(
        other in fits and asset.id in chosen[other].requires for other in writers
    )


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
