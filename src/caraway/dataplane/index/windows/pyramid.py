"""The tile pyramids of an index: adding and removing aggregate inputs.

The root of a key is the smallest tile that contains all its aggregate inputs (`Geometry.level_of`). When a tile gets
more than `Geometry.split` aggregate inputs, children are made once from its raw aggregate inputs and kept from then on.
So a key with few aggregate inputs has only a root, and a busy key has a tree whose leaves contain few aggregate inputs
each, or those of one moment.

A batch changes each tile once: a leaf by its aggregate inputs, and any other tile by the sum of its children's changes.
"""

from collections.abc import Container, Sequence

from rocksdict import WriteBatch

from caraway.dataplane.index.aggregates.layout import AggregateInput, Layout
from caraway.dataplane.index.aggregates.partials import HAS_ENDED, NO_HIGH, NO_LOW, SPLIT, Partial, unpack
from caraway.dataplane.index.storage.keys import ENDED, RAW, SIGN, TIME_BYTES, pack_u64, tile_key
from caraway.dataplane.index.storage.store import IndexStore
from caraway.dataplane.topics.codec import RecordCodec

# The writer keeps at most this many decoded tiles between batches, in two generations of half as many: when the younger
# one is full, the older one is dropped. A tile takes 0.5 to 1 KiB, so all take up to 20 MiB.
CACHED_TILES = 20_000


class TileCache:
    """A cache of the tiles used last, decoded, and of the tiles that are to be written.

    Only the writer changes tiles, so a tile in the cache is equal to the one in the database, or newer.
    """

    def __init__(self, store: IndexStore, capacity: int = CACHED_TILES) -> None:
        self._store = store
        self._generation = capacity // 2
        self._young: dict[bytes, Partial] = {}
        self._old: dict[bytes, Partial] = {}
        self._dirty: dict[bytes, Partial] = {}
        self._heavy = 0

    def load(self, layout: Layout, key: bytes) -> Partial | None:
        """Return the tile under `key`, None if there is none."""
        tile = self._cached(key)
        if tile is not None:
            return tile
        data = self._store.get(key)
        return None if data is None else self._keep(key, _decoded(layout, data))

    def load_many(self, layout: Layout, keys: Sequence[bytes]) -> list[Partial]:
        """Return the tiles under `keys`, empty ones where there are none."""
        tiles = [self._cached(key) for key in keys]
        missing = [position for position, tile in enumerate(tiles) if tile is None]
        if missing:
            found = self._store.get_many([keys[position] for position in missing])
            for position, data in zip(missing, found, strict=True):
                tile = layout.empty() if data is None else _decoded(layout, data)
                tiles[position] = self._keep(keys[position], tile)
        return tiles  # type: ignore[return-value]

    def save(self, key: bytes, tile: Partial) -> None:
        """Note that `tile` is to be written under `key`."""
        self._dirty[key] = tile

    def flush(self, batch: WriteBatch) -> None:
        """Add all changed tiles to `batch`. Those without aggregate inputs are deleted."""
        put = batch.put
        for key, tile in self._dirty.items():
            if tile.count or tile.flags & HAS_ENDED:
                put(key, tile.pack())
                self._young[key] = tile
                if tile.extras:
                    self._note_weight(tile)
            else:
                batch.delete(key)
                self._young.pop(key, None)
                self._old.pop(key, None)
        self._dirty.clear()

    def discard(self) -> None:
        """Remove all tiles, because a batch failed and the database still has the state before it."""
        self._young.clear()
        self._old.clear()
        self._dirty.clear()
        self._heavy = 0

    def _cached(self, key: bytes) -> Partial | None:
        tile = self._young.get(key)
        if tile is None:
            tile = self._old.get(key)
            if tile is not None:
                self._keep(key, tile)
            else:
                tile = self._dirty.get(key)
        return tile

    def _keep(self, key: bytes, tile: Partial) -> Partial:
        if len(self._young) + self._heavy >= self._generation:
            self._old = self._young
            self._young = {}
            self._heavy = 0
        tile.noted_weight = 0
        self._young[key] = tile
        if tile.extras:
            self._note_weight(tile)
        return tile

    def _note_weight(self, tile: Partial) -> None:
        """Count a tile with many values as several tiles, by the memory that it takes."""
        weight = tile.weight - 1
        self._heavy += max(0, weight - tile.noted_weight)
        tile.noted_weight = weight


class Pyramid:
    """The writer of the tiles of one index."""

    def __init__(self, store: IndexStore, tiles: TileCache, layout: Layout, codec: RecordCodec) -> None:
        """Keep the tiles of `layout` in `tiles`; `codec` reads aggregate inputs that are in `store` already."""
        self.store = store
        self.tiles = tiles
        self.layout = layout
        self.codec = codec
        self.geometry = store.geometry

    def change(
        self,
        prefix: bytes,
        root: Partial,
        added: Sequence[AggregateInput],
        removed: Sequence[AggregateInput],
        touched: Container[bytes],
    ) -> None:
        """Add aggregate inputs that a key doesn't have yet, and remove some that it has; the caller saves the root.

        `prefix` begins the key's entries. `touched` are the raw entries of the aggregate inputs that are added or
        removed: the database has them as they were before the batch, so they aren't read there.
        """
        if not removed and not root.flags & SPLIT and root.count + len(added) <= self.geometry.split:
            # Most keys have few aggregate inputs: nothing but the root is changed.
            self.layout.add(root, added)
            return
        key_tiles = _KeyTiles(self, prefix, touched)
        if added:
            key_tiles.grow(root, added)
        level = self.geometry.level_of(root.low, root.high)
        key_tiles.change_root(level, self.geometry.number(level, root.low), root, added, removed)
        if not root.count:
            root.low, root.high = NO_LOW, NO_HIGH
            root.flags &= ~SPLIT


class _KeyTiles:
    """The tiles of one key during a batch."""

    __slots__ = ("_geometry", "_layout", "_prefix", "_pyramid", "_tiles", "_touched")

    def __init__(self, pyramid: Pyramid, prefix: bytes, touched: Container[bytes]) -> None:
        self._pyramid = pyramid
        self._tiles = pyramid.tiles
        self._layout = pyramid.layout
        self._geometry = pyramid.geometry
        self._prefix = prefix
        self._touched = touched

    def grow(self, root: Partial, added: Sequence[AggregateInput]) -> None:
        """Extend the root's bounds.

        If that raises the root's level, and the root has children or is about to get them, copies of the old root
        become the tiles on the levels between its old level and the new one.
        """
        times = [time_us for time_us, _, _ in added]
        low, high = min(times), max(times)
        if not root.count:
            root.low, root.high = low, high
            return
        low, high = min(low, root.low), max(high, root.high)
        geometry = self._geometry
        old_level, level = geometry.level_of(root.low, root.high), geometry.level_of(low, high)
        if level > old_level and (root.flags & SPLIT or root.count > geometry.split):
            for between in range(old_level, level):
                tile = self._layout.clone(root)
                self._tiles.save(tile_key(self._prefix, between, geometry.number(between, root.low)), tile)
                root.flags |= SPLIT
        root.low, root.high = low, high

    def change_root(
        self, level: int, number: int, tile: Partial, added: Sequence[AggregateInput], removed: Sequence[AggregateInput]
    ) -> None:
        """Change the root and the tiles below it; at least one aggregate input is added or removed."""
        if removed or tile.flags & SPLIT:
            self.change(level, number, tile, added, removed)
            return
        # The root has no tile above it that needs the sum of the added inputs alone, so they are added directly.
        self._layout.add(tile, added)
        self._split_if_full(level, number, tile, added)

    def change(
        self, level: int, number: int, tile: Partial, added: Sequence[AggregateInput], removed: Sequence[AggregateInput]
    ) -> tuple[Partial | None, Partial | None]:
        """Change a tile and those below. Return the partial aggregates of what was added and of what was removed."""
        if tile.flags & SPLIT:
            gain, loss = self._change_children(level - 1, added, removed)
        else:
            gain = self._layout.partial(added) if added else None
            loss = self._layout.partial(removed) if removed else None
        stale = loss is not None and tile.subtract(loss)
        if gain is not None:
            tile.merge(gain)
        self._split_if_full(level, number, tile, added)
        if stale:
            self._find_anew(level, number, tile, added)
        return gain, loss

    def _change_children(
        self, level: int, added: Sequence[AggregateInput], removed: Sequence[AggregateInput]
    ) -> tuple[Partial | None, Partial | None]:
        gains, losses = self._by_tile(level, added), self._by_tile(level, removed)
        total_gain: Partial | None = None
        total_loss: Partial | None = None
        for number in gains.keys() | losses.keys():
            key = tile_key(self._prefix, level, number)
            tile = self._tiles.load(self._layout, key) or self._layout.empty()
            gain, loss = self.change(level, number, tile, gains.get(number, ()), losses.get(number, ()))
            self._tiles.save(key, tile)
            total_gain, total_loss = _sum(total_gain, gain), _sum(total_loss, loss)
        return total_gain, total_loss

    def _split_if_full(self, level: int, number: int, tile: Partial, added: Sequence[AggregateInput]) -> None:
        """Make the children of a tile from its aggregate inputs, if it has none yet and too many aggregate inputs."""
        if tile.count <= self._geometry.split or not level or tile.flags & SPLIT:
            return
        aggregate_inputs = list(added)
        if tile.count > len(added):
            aggregate_inputs += self._untouched(level, number)
        for child, part in self._by_tile(level - 1, aggregate_inputs).items():
            child_tile = self._layout.empty()
            self.change(level - 1, child, child_tile, part, ())
            self._tiles.save(tile_key(self._prefix, level - 1, child), child_tile)
        tile.flags |= SPLIT

    def _find_anew(self, level: int, number: int, tile: Partial, added: Sequence[AggregateInput]) -> None:
        """Compute anew what couldn't be subtracted: least and greatest values, first and last positions, sketches."""
        if tile.flags & SPLIT:
            keys = (tile_key(self._prefix, level - 1, child) for child in self._geometry.children(level, number))
            parts = [part for key in keys if (part := self._tiles.load(self._layout, key)) is not None]
        else:
            aggregate_inputs = [*added, *self._untouched(level, number)]
            parts = [self._layout.partial(aggregate_inputs)] if aggregate_inputs else []
        tile.find_anew(parts)

    def _by_tile(self, level: int, aggregate_inputs: Sequence[AggregateInput]) -> dict[int, list[AggregateInput]]:
        if not aggregate_inputs:
            return {}
        shift = self._geometry.shift(level)
        numbers = [(time_us + SIGN) >> shift for time_us, _, _ in aggregate_inputs]
        first = numbers[0]
        # The inputs of one batch are close to each other in time and often belong to one tile. In this case they
        # needn't be divided one by one.
        if numbers.count(first) == len(numbers):
            return {first: list(aggregate_inputs)}
        groups: dict[int, list[AggregateInput]] = {}
        for number, aggregate_input in zip(numbers, aggregate_inputs, strict=True):
            groups.setdefault(number, []).append(aggregate_input)
        return groups

    def _untouched(self, level: int, number: int) -> list[AggregateInput]:
        """Return the aggregate inputs of a tile that are in the database and that this batch doesn't change."""
        pyramid, shift, prefix = self._pyramid, self._geometry.shift(level), self._prefix
        end = (number + 1) << shift
        last = prefix + RAW + pack_u64(end) if end < 1 << 64 else prefix + ENDED
        entries = pyramid.store.scan(prefix + RAW + pack_u64(number << shift), last)
        rank = len(prefix) + len(RAW) + TIME_BYTES
        found = [(key[rank:], value) for key, value in entries if key not in self._touched]
        # The raw entries of an index are all puts, so all are decoded together by a decoder that accepts only puts.
        records = pyramid.codec.decode_puts([value for _, value in found])
        times = [record.time for record in records]
        values = self._layout.values_of_rows([record.row for record in records], times)
        return list(zip(times, values, [order for order, _ in found], strict=True))


def _decoded(layout: Layout, data: bytes) -> Partial:
    packed = unpack(data)
    if not layout.extras:
        return Partial.restored(packed)
    tile = layout.empty()
    tile.merge_packed([packed])
    tile.flags = packed[3]
    return tile


def _sum(total: Partial | None, part: Partial | None) -> Partial | None:
    """Return the sum of `total`, which is changed, and `part`."""
    if total is None or part is None:
        return part if total is None else total
    total.merge(part)
    return total
