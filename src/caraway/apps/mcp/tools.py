"""The tools that an agent is offered: all of them read, none changes anything.

The docstring of a tool is what the agent's model reads to decide when to call it, and how.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any
from urllib.parse import quote

from mcp.server.mcpserver import Context
from pydantic import FailFast, Field

from caraway.apps.mcp.asking import Server
from caraway.apps.mcp.lineage import Direction, around
from caraway.apps.mcp.searching import Kind, entries, search
from caraway.apps.mcp.sizes import MAX_ROWS, check_rows, first_of, fitting

Branch = Annotated[str, Field(description="A branch; without it, the one for which this server was started.")]
Row = dict[str, Any]


class _First(FailFast):
    """Ends the check of a list at its first wrong element: to tell 300,000 takes a minute and 560 MB."""

    # A union such as `Names | None` hashes its types, and with these their annotations.
    __hash__ = object.__hash__


Rows = Annotated[list[Row], _First()]
Names = Annotated[list[str], _First()]

# The most entries that one search returns.
MAX_FOUND = 200


@dataclass(frozen=True, slots=True)
class Tools:
    """The tools, whose calls ask one Caraway server.

    Each method raises `RemoteError` if the server refuses, `UnavailableError` if it doesn't answer, and `TooLargeError`
    if the question or the answer is too large.
    """

    server: Server

    def all(self) -> tuple[Callable[..., Any], ...]:
        """Return the tools, in the order in which an agent would want to read about them."""
        return (
            self.status,
            self.search_catalog,
            self.describe,
            self.lineage,
            self.sample_rows,
            self.lookup_rows,
            self.query_features,
            self.explain_query,
            self.commits,
            self.dead_letters,
            self.skew,
        )

    def status(self, ctx: Context, branch: Branch = "") -> Row:
        """Report what is wrong now (`wrong`), and on jobs, sources, sinks, and how far indexes are behind."""
        with self._asked(ctx) as asker:
            wrong = asker.get("/problems", branch=branch)["problems"]
            answer = {"wrong": wrong, **asker.get("/status", branch=branch)}
            return _object(fitting(answer, "ask about single datasets with describe"))

    def search_catalog(
        self,
        ctx: Context,
        *,
        text: Annotated[str, Field(description="Words in names, descriptions, owners or tags, in any case.")] = "",
        kind: Annotated[Kind | None, Field(description="Only entities of this kind.")] = None,
        owner: Annotated[str, Field(description="Only entities of this owner, an e-mail address.")] = "",
        tag: Annotated[str, Field(description="Only entities with this tag, their own or an inherited one.")] = "",
        limit: Annotated[int, Field(ge=1, le=MAX_FOUND)] = 50,
        branch: Branch = "",
    ) -> Row:
        """Find sources, datasets, pipelines, sinks, featuresets, extractors and features; without a condition, all."""
        with self._asked(ctx) as asker:
            known = entries(asker.get("/xray", branch=branch), asker.get("/lineage", branch=branch))
        found = search(known, text=text, kind=kind, owner=owner, tag=tag)
        return first_of(found, limit, "found")

    def describe(
        self,
        ctx: Context,
        name: Annotated[str, Field(description="A dataset, featureset, feature, pipeline (Dataset.name) or source.")],
        branch: Branch = "",
    ) -> Row:
        """Return a definition: schema, source code, where it comes from, who uses it, how far its index is behind."""
        with self._asked(ctx) as asker:
            answer = asker.get(f"/definition/{quote(name, safe='')}", branch=branch)
        return _object(fitting(answer, "ask about one feature of the featureset, by its full name"))

    def lineage(
        self,
        ctx: Context,
        name: Annotated[str, Field(description="A source, dataset, pipeline, featureset, feature or sink.")],
        direction: Annotated[
            Direction, Field(description="upstream: what it is computed from; downstream: what is computed from it.")
        ] = "both",
        depth: Annotated[int, Field(ge=1, le=20, description="The most steps to follow.")] = 3,
        branch: Branch = "",
    ) -> Row:
        """Return what something is computed from and what is computed from it, as nodes and edges."""
        with self._asked(ctx) as asker:
            found = around(asker.get("/lineage", branch=branch), name, direction, depth)
        return _object(fitting(found, "ask for fewer steps, or for one direction"))

    def sample_rows(
        self,
        ctx: Context,
        dataset: str,
        n: Annotated[int, Field(ge=1, le=MAX_ROWS, description="How many rows.")] = 10,
        branch: Branch = "",
    ) -> Row:
        """Return some recent rows of a dataset."""
        with self._asked(ctx) as asker:
            rows = asker.get(f"/dataset/{quote(dataset, safe='')}/inspect", {"n": n}, branch=branch)
        return first_of(_rows_of(rows), n, "rows")

    def lookup_rows(
        self,
        ctx: Context,
        *,
        dataset: str,
        keys: Annotated[Rows, Field(description="An object for each row wanted, with all key columns.")],
        fields: Annotated[Names | None, Field(description="The columns wanted; without it, all.")] = None,
        at: Annotated[str, Field(description="The instant to read as of (ISO 8601); without it, now.")] = "",
        branch: Branch = "",
    ) -> Row:
        """Look up rows of a keyed dataset, now or as of an instant."""
        check_rows(keys, "lookup_rows")
        body = {"keys": keys, "fields": fields or [], **_at(at, keys)}
        with self._asked(ctx) as asker:
            answer = asker.post(f"/dataset/{quote(dataset, safe='')}/lookup", body, branch=branch)
        return _object(fitting(answer, "ask for fewer keys or fields"))

    def query_features(
        self,
        ctx: Context,
        *,
        outputs: Annotated[Names, Field(description="Features or featuresets, by full name.")],
        rows: Annotated[Rows, Field(description="The inputs: an object for each row, by full names of features.")],
        at: Annotated[str, Field(description="The instant to compute as of (ISO 8601); without it, now.")] = "",
        branch: Branch = "",
    ) -> Row:
        """Compute features for rows of inputs, as they are served. Nothing of it is logged as served."""
        check_rows(rows, "query_features")
        inputs = list(rows[0]) if rows else []
        body = {"inputs": inputs, "outputs": outputs, "data": rows, "log": False, "workflow": "mcp", **_at(at, rows)}
        with self._asked(ctx) as asker:
            answer = asker.post("/query", body, branch=branch)
        return _object(fitting(answer, "ask for fewer rows or features"))

    def explain_query(
        self,
        ctx: Context,
        outputs: Annotated[Names, Field(description="Features or featuresets, by full name.")],
        inputs: Annotated[Names, Field(description="The features that a caller would supply.")],
        branch: Branch = "",
    ) -> Row:
        """Return the plan of a query: lookups, expressions and extractors in their order, without running it."""
        with self._asked(ctx) as asker:
            answer = asker.post("/query/explain", {"outputs": outputs, "inputs": inputs, "runs": 1}, branch=branch)
        return _object(fitting(answer, "explain fewer features"))

    def commits(self, ctx: Context, limit: Annotated[int, Field(ge=1, le=100)] = 20, branch: Branch = "") -> Row:
        """Return the commits of a branch, newest first: who changed the definitions, when, and why."""
        with self._asked(ctx) as asker:
            answer = asker.get("/branch/log", {"limit": limit}, branch=branch)
        return first_of(answer["commits"], limit, "commits")

    def dead_letters(
        self,
        ctx: Context,
        dataset: Annotated[str, Field(description="Only those of this dataset.")] = "",
        source: Annotated[str, Field(description="Only those of this source or webhook.")] = "",
        limit: Annotated[int, Field(ge=1, le=100)] = 20,
        branch: Branch = "",
    ) -> Row:
        """Return the newest rows that were refused or failed, with the reasons and without their values."""
        with self._asked(ctx) as asker:
            answer = asker.get("/dead_letters", {"dataset": dataset, "source": source, "limit": limit}, branch=branch)
        return first_of(answer["dead_letters"], limit, "dead_letters")

    def skew(
        self,
        ctx: Context,
        feature: Annotated[str, Field(description="Only this feature or featureset.")] = "",
        hours: Annotated[int, Field(ge=1, le=24 * 366, description="How many hours back.")] = 24,
        branch: Branch = "",
    ) -> Row:
        """Return which served features differ when they are computed again, and why."""
        with self._asked(ctx) as asker:
            answer = asker.get("/skew", {"feature": feature, "hours": hours, "samples": 10}, branch=branch)
        return _object(fitting(answer, "ask about one feature"))

    def _asked(self, ctx: Context) -> Any:
        return self.server.asked_by(ctx.headers)


def _at(at: str, rows: Sequence[Row]) -> dict[str, list[str]]:
    return {"timestamps": [at] * len(rows)} if at else {}


def _object(answer: Any) -> Row:
    return answer if isinstance(answer, dict) else {"answer": answer}


def _rows_of(answer: Any) -> list[Row]:
    """Return the rows of an answer that has either rows or columns."""
    if isinstance(answer, Mapping):
        names = list(answer)
        return [dict(zip(names, values, strict=True)) for values in zip(*answer.values(), strict=True)]
    return list(answer)
