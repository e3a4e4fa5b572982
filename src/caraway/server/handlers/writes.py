"""The handlers that write: log and commit."""

import asyncio
import hashlib
from dataclasses import replace

from caraway.errors import InvalidInputError
from caraway.graph.wire import decode_commit
from caraway.ingest import IngestService, RequestKey
from caraway.server.access.limits import AccessLimits, approval
from caraway.server.deployment import Deployment
from caraway.server.http.messages import HttpResponse, Request, json_response


class Api:
    """Accepts rows and definitions."""

    def __init__(self, deployment: Deployment, limits: AccessLimits) -> None:
        """Pass requests on to `deployment`, for callers within their `limits`."""
        self._deployment = deployment
        self._limits = limits
        self.ingest = IngestService(deployment.writer, deployment.bootstrap_servers, deployment.erased)
        self._commits = deployment.control.commits

    async def commit(self, request: Request) -> HttpResponse:
        """Answer `POST /commit`: apply definitions, sent as protobuf."""
        self._deployment.graphs.require_served_graph(request.branch)
        if not request.body:
            # An empty body is a valid protobuf message, and such a commit would empty the branch, so it is refused.
            raise InvalidInputError("the body is empty; a commit request is expected")
        given = decode_commit(request.body)
        wanted = replace(
            given,
            incremental=request.flag("incremental", default=given.incremental),
            preview=request.flag("preview", default=given.preview),
            backfill=request.flag("backfill", default=given.backfill),
        )
        result = await asyncio.to_thread(
            self._commits.commit,
            wanted,
            branch=request.branch,
            author=request.caller.account,
            approve=approval(request.caller, request.branch),
        )
        if not wanted.preview:
            # The graph is reloaded before the answer, so that the caller can log and query at once.
            await asyncio.to_thread(self._deployment.graphs.reload)
        return json_response(
            {
                "summary": [f"{line}\n" for line in result.summary],
                "commit_id": result.commit_id,
                "preview": wanted.preview,
                **result.details,
            }
        )

    async def log(self, request: Request) -> HttpResponse:
        """Answer `POST /log`: accept rows for a webhook."""
        served = self._deployment.graphs.require_served_graph(request.branch)
        body = await request.json()
        self._limits.check_log(request, served, body)
        if isinstance(body, dict) and isinstance(body.get("data"), str):
            try:
                body["data"] = await request.values(body["data"].encode())
            except InvalidInputError as error:
                raise InvalidInputError(f"data is text that {error}") from error
        key = request.headers.get("idempotency-key")
        parsed = None
        if key is not None:
            digest = hashlib.blake2b(request.body, digest_size=16).digest()
            parsed = RequestKey.parse(key, request.headers.get("caraway-elapsed-ms"), digest)
        report = await self.ingest.log(served.endpoints, body, parsed, is_large=request.is_large)
        return json_response(report.to_json(), report.status)
