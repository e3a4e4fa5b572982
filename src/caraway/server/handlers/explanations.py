"""The handler of `POST /query/explain`: the plan of a query and, if the request has rows, the time of its parts."""

from functools import partial

import msgspec

from caraway.errors import InvalidInputError
from caraway.query.explain import MAX_RUNS, analyze, explain
from caraway.server.access.limits import AccessLimits
from caraway.server.handlers.queries import Queries, check_rows, rows_of
from caraway.server.handlers.reads import given_of, names_of, object_of
from caraway.server.http.messages import HttpResponse, Request, json_response

RUNS = 20


class Explanations:
    """Explains queries."""

    def __init__(self, limits: AccessLimits, queries: Queries) -> None:
        """Explain what `limits` lets callers see; queries run in the threads of `queries`."""
        self._limits = limits
        self._queries = queries

    async def explain(self, request: Request) -> HttpResponse:
        """Answer `POST /query/explain`: the body is a query's, `data` may be missing, `runs` is how often it runs."""
        live = self._limits.seen(request)
        body = object_of(await request.json())
        plan = live.queries.plan(names_of(body, "inputs"), names_of(body, "outputs"))
        if body.get("data") is None:
            explained = explain(plan)
        else:
            given = await given_of(request, body)
            runs = body.get("runs")
            runs = RUNS if runs is None else runs
            if not isinstance(runs, int) or isinstance(runs, bool) or not 1 <= runs <= MAX_RUNS:
                raise InvalidInputError(f"runs is expected to be a number from 1 to {MAX_RUNS}")
            check_rows(rows_of(given.data) * runs)
            explained = await self._queries.in_thread(partial(analyze, plan, given.data, given.at, runs))
        return json_response({"commit": live.version or None, **msgspec.to_builtins(explained)})
