"""The window of a table: digests of rows that the next round may read again.

They are kept in pages of one batch each, with the ranks of the cursor that the page covers, so only the pages that
belong to the rows just read are looked into, and the others are bytes. A page is one item of the source.

A round that was interrupted is continued as a further *pass*, which may read some rows again. Within a pass each row
comes once, so the number of equal rows that are known is the greatest number that one pass has seen.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import orjson

from caraway.dataplane.sources.reader import Items
from caraway.dataplane.sources.tables.cursors import from_json, to_json

# The bytes of a digest. If the table has a primary key, the first half is a digest of the key and the cursor, and the
# second half one of all columns that are compared.
DIGEST_BYTES = 16
IDENTITY_BYTES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class _Page:
    """The digests of the rows of one batch.

    Attributes:
        round: The number of the round.
        of_pass: The number of the pass.
        schema: The digest of the columns of which the digests were made.
        least: The first value of the cursor.
        most: The last value of the cursor.
        digests: The digests, one behind the other.
    """

    round: int
    of_pass: int
    schema: str
    least: Any
    most: Any
    digests: bytes

    def encode(self) -> bytes:
        bounds = [self.schema, to_json(self.least), to_json(self.most)]
        return orjson.dumps(bounds) + b"\n" + self.digests

    def split(self) -> list[bytes]:
        return [self.digests[at : at + DIGEST_BYTES] for at in range(0, len(self.digests), DIGEST_BYTES)]


def _decoded(name: str, value: bytes) -> _Page:
    number, of_pass, _ = name.split("-")
    head, _, digests = value.partition(b"\n")
    schema, least, most = msgspec.json.decode(head)
    return _Page(
        round=int(number),
        of_pass=int(of_pass),
        schema=schema,
        least=from_json(least),
        most=from_json(most),
        digests=digests,
    )


class Window:
    """The digests of a source's window."""

    def __init__(self, items: Items) -> None:
        """Read the pages from the source's items."""
        self._pages = {name: _decoded(name, value) for name, value in items.items()}
        self._next = max((int(name.rpartition("-")[2]) for name in items), default=-1) + 1
        self._changes: dict[str, bytes | None] = {}
        self._rank: Callable[[Any], Any] = lambda value: value
        self._schema, self._has_key = "", False

    def follow(self, rank: Callable[[Any], Any], schema: str, *, has_key: bool) -> None:
        """Make digests of these columns from now on.

        Args:
            rank: Returns the rank of a value of the cursor.
            schema: The digest of the columns of which digests are made.
            has_key: True if the table has a primary key.
        """
        self._rank, self._schema, self._has_key = rank, schema, has_key

    def __len__(self) -> int:
        return sum(len(page.digests) for page in self._pages.values()) // DIGEST_BYTES

    def known(self, least: Any, most: Any, of_pass: int) -> "Known":
        """Return which rows between two values of the cursor other passes have seen."""
        low, high = self._rank(least), self._rank(most)
        passes: dict[int, Counter[bytes]] = {}
        identities: set[bytes] = set()
        for page in self._pages.values():
            if page.of_pass == of_pass or self._rank(page.least) > high or self._rank(page.most) < low:
                continue
            if page.schema == self._schema:
                passes.setdefault(page.of_pass, Counter()).update(page.split())
            elif self._has_key:
                # The digests of these rows were made of other columns, so only their keys can be compared.
                identities.update(digest[:IDENTITY_BYTES] for digest in page.split())
        counts: Counter[bytes] = Counter()
        for count in passes.values():
            counts |= count
        return Known(counts, identities, self._has_key)

    def add(self, round_number: int, of_pass: int, least: Any, most: Any, digests: Iterable[bytes]) -> None:
        """Keep the digests of rows that were read, whether they were known or not."""
        page = _Page(
            round=round_number, of_pass=of_pass, schema=self._schema, least=least, most=most, digests=b"".join(digests)
        )
        name = f"{round_number}-{of_pass}-{self._next}"
        self._next += 1
        self._pages[name] = page
        self._changes[name] = page.encode()

    def drop(self, is_gone: Callable[[int, Any], bool]) -> None:
        """Forget the pages for which a function of their round and of the rank of their last value is true."""
        for name in [name for name, page in self._pages.items() if is_gone(page.round, self._rank(page.most))]:
            del self._pages[name]
            # A page that was never saved needn't be removed.
            if name in self._changes:
                del self._changes[name]
            else:
                self._changes[name] = None

    def changes(self) -> dict[str, bytes | None]:
        """Return the items that have changed since the last call."""
        changed, self._changes = self._changes, {}
        return changed


@dataclass(frozen=True, slots=True)
class Known:
    """The rows that were seen: how often, by their digests; and those whose key alone counts.

    If the table has a primary key, no row of it comes twice in a pass, so rows needn't be counted.
    """

    counts: Mapping[bytes, int]
    identities: set[bytes]
    has_key: bool

    def new(self, digests: Sequence[bytes], passed: Counter[bytes]) -> tuple[Sequence[int], dict[int, int]]:
        """Return the numbers of the rows that weren't seen before, and how many equal rows came before such a row.

        The second part lacks the rows before which none came.

        Args:
            digests: The digests of the rows.
            passed: How many equal rows this pass has met; the rows are added.
        """
        if self.has_key and not self.counts and not self.identities:
            return range(len(digests)), {}
        found: list[int] = []
        equal: dict[int, int] = {}
        counts, identities = self.counts, self.identities
        for number, digest in enumerate(digests):
            before = passed[digest]
            passed[digest] = before + 1
            if before >= counts.get(digest, 0) and (not identities or digest[:IDENTITY_BYTES] not in identities):
                found.append(number)
                if before:
                    equal[number] = before
        return found, equal
