"""The REST surface as an OpenAPI document, and a page that shows it."""

from html import escape
from importlib.metadata import version
from typing import Any

from caraway.integrations.secret_rules import MAX_VALUE
from caraway.query.explain import MAX_RUNS
from caraway.server.handlers.answers import OPERATIONS, STATUSES
from caraway.server.handlers.arrow import CONTENT_TYPE as ARROW
from caraway.server.handlers.dead_letters import MAX_SHOWN
from caraway.server.handlers.waiting import LONGEST_S
from caraway.server.http.messages import HttpResponse, Request, json_response, text_response
from caraway.server.http.routes import API, PROTOBUF
from caraway.state.model import MAIN

Json = dict[str, Any]

NAMES: Json = {"type": "array", "items": {"type": "string"}}
ROWS: Json = {
    "description": "Rows (a list of objects), columns (an object of lists), or JSON text of either.",
    "anyOf": [
        {"type": "array", "items": {"type": "object"}},
        {"type": "object", "additionalProperties": {"type": "array", "items": {}}},
        {"type": "string"},
    ],
}
TIMES: Json = {
    "type": ["array", "null"],
    "items": {"type": ["string", "number"]},
    "description": "An instant for each row: ISO 8601 text or an epoch number.",
}
BYTES: Json = {"type": "string", "format": "binary"}
COLUMNS: Json = {"type": "object", "additionalProperties": {"type": "array", "items": {}}}
REFUSAL: Json = {
    "type": "object",
    "required": ["err_msg", "code"],
    "properties": {"err_msg": {"type": "string"}, "code": {"type": "string"}},
}
# The header that names the branch; Fennel's name of it is accepted as well.
BRANCH: Json = {
    "name": "X-Caraway-Branch",
    "in": "header",
    "schema": {"type": "string", "default": MAIN},
    "description": "The branch that the request is about.",
}
BEARER: Json = {
    "type": "http",
    "scheme": "bearer",
    "description": "A token of `caraway tokens create`, or that of the stack; none with server.tokens=false.",
}


def document() -> Json:
    """Return the document."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Caraway",
            "version": version("caraway"),
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/", "description": "The server that shows this document."}],
        "components": {
            "securitySchemes": {"bearer": BEARER},
            "parameters": {"Branch": BRANCH},
            "schemas": {"Refusal": REFUSAL},
        },
        "paths": {
            f"{API}/query": {
                "post": _operation(
                    "query",
                    "Features for rows of inputs",
                    _json_body(
                        {
                            "inputs": NAMES,
                            "outputs": NAMES,
                            "data": ROWS,
                            "timestamps": TIMES,
                            "workflow": {"type": ["string", "null"]},
                            "log": {"type": ["boolean", "null"]},
                            "sampling_rate": {"type": ["number", "null"], "minimum": 0, "maximum": 1},
                        },
                        ["inputs", "outputs", "data"],
                        other=ARROW,
                    ),
                    COLUMNS,
                    parameters=[
                        {
                            "name": "outputs",
                            "in": "query",
                            "schema": {"type": "string"},
                            "description": "Of a body in Arrow: full names of the outputs, separated by commas.",
                        },
                        *(
                            {"name": name, "in": "query", "schema": schema, "description": "Of a body in Arrow."}
                            for name, schema in (
                                ("workflow", {"type": "string"}),
                                ("log", {"type": "string", "enum": ["true", "false"]}),
                                ("sampling_rate", {"type": "number", "minimum": 0, "maximum": 1}),
                            )
                        ),
                    ],
                    other=ARROW,
                )
            },
            f"{API}/query/explain": {
                "post": _operation(
                    "explainQuery",
                    "What a query does, and how long each part takes",
                    _json_body(
                        {
                            "inputs": NAMES,
                            "outputs": NAMES,
                            "data": {"anyOf": [*ROWS["anyOf"], {"type": "null"}]},
                            "timestamps": TIMES,
                            "runs": {"type": ["integer", "null"], "minimum": 1, "maximum": MAX_RUNS},
                        },
                        ["inputs", "outputs"],
                    ),
                    {"type": "object", "required": ["inputs", "steps", "outputs"]},
                )
            },
            "/get-online-features": {
                "post": _operation(
                    "getOnlineFeatures",
                    "Features in the shape of Feast's feature server",
                    _json_body(
                        {
                            "entities": COLUMNS,
                            "features": {**NAMES, "description": "view:feature"},
                            "feature_service": {"type": ["string", "null"]},
                            "full_feature_names": {"type": "boolean"},
                        },
                        ["entities"],
                    ),
                    {"type": "object", "required": ["metadata", "results"]},
                )
            },
            f"{API}/dataset/{{name}}/lookup": {
                "post": _operation(
                    "lookup",
                    "Rows of a dataset by key",
                    _json_body(
                        {
                            "keys": {"type": "array", "items": {"type": "object"}},
                            "fields": {**NAMES, "type": ["array", "null"]},
                            "timestamps": TIMES,
                        },
                        ["keys"],
                    ),
                    {
                        "type": "object",
                        "required": ["found", "data"],
                        "properties": {"found": {"type": "array", "items": {"type": "boolean"}}, "data": COLUMNS},
                    },
                    parameters=[
                        {"name": "name", "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
                    ],
                )
            },
            f"{API}/log": {
                "post": _operation(
                    "log",
                    "Rows for a webhook's endpoint",
                    _json_body(
                        {"webhook": {"type": "string"}, "endpoint": {"type": "string"}, "data": ROWS},
                        ["webhook", "endpoint", "data"],
                    ),
                    {"type": "object", "required": ["accepted", "rejected"]},
                    parameters=[
                        {
                            "name": "Idempotency-Key",
                            "in": "header",
                            "schema": {"type": "string", "maxLength": 200},
                            "description": "A new one for each request; with it a request can be sent again.",
                        }
                    ],
                )
            },
            f"{API}/wait": {
                "post": _operation(
                    "wait",
                    "An answer when all rows that were accepted before are served",
                    _json_body(
                        {
                            "seconds": {"type": "number", "minimum": 0, "maximum": LONGEST_S},
                            "commit": {"type": ["boolean", "null"], "description": "Wait for the newest commit too."},
                            "since": {
                                "type": ["object", "null"],
                                "description": "Of an earlier answer: go on waiting for what was accepted before it.",
                            },
                        },
                        [],
                    ),
                    {
                        "type": "object",
                        "required": ["served", "lagging", "since"],
                        "properties": {
                            "served": {"type": "boolean"},
                            "lagging": {"type": "array", "items": {"type": "object"}},
                            "since": {"type": "object"},
                        },
                    },
                )
            },
            f"{API}/commit": {
                "post": _operation(
                    "commit",
                    "Definitions, as the client sends them",
                    {"content": {kind: {"schema": BYTES} for kind in PROTOBUF}, "required": True},
                    {"type": "object", "required": ["summary"]},
                    parameters=[
                        {"name": name, "in": "query", "schema": {"type": "string", "enum": ["true", "false"]}}
                        for name in ("preview", "incremental", "backfill")
                    ],
                )
            },
            **_branches(),
            **_privacy(),
            **_dead_letters(),
            f"{API}/health": {"get": _operation("health", "Whether everything works", None, {"type": "object"})},
            f"{API}/status": {
                "get": _operation("status", "Version, commit, topics, index, jobs", None, {"type": "object"})
            },
            f"{API}/metrics": {"get": _operation("metrics", "Counters for Prometheus", None, None)},
            "/metrics": {"get": _operation("metricsAtTheRoot", "Counters for Prometheus", None, None)},
            f"{API}/openapi.json": {"get": _operation("openapi", "This document", None, {"type": "object"})},
            f"{API}/docs": {"get": _operation("docs", "This document as a page", None, None)},
            "/": {"get": _operation("root", "What this is", None, None)},
        },
    }


def _branches() -> Json:
    """Return the paths of branches, history and ledger. The header `X-Caraway-Branch` names the branch."""

    def number(name: str, text: str) -> Json:
        schema = {"type": "integer", "minimum": 0, "maximum": 99_999}
        return {"name": name, "in": "query", "schema": schema, "description": text}

    ends = [
        {"name": name, "in": "query", "required": True, "schema": {"type": "string"}, "description": "Id of a commit."}
        for name in ("from", "to")
    ]
    nothing = {"content": {"application/json": {"schema": {"type": "object"}}}}
    clone = _json_body({"clone_from": {"type": ["string", "null"]}}, [])
    commit = _json_body({"commit_id": {"type": "string"}}, ["commit_id"])
    answer = {"type": "object"}
    return {
        f"{API}/init": {"post": _operation("initBranch", "Make the branch, empty or as a clone", clone, answer)},
        f"{API}/delete": {"post": _operation("deleteBranch", "Delete the branch", nothing, answer)},
        f"{API}/branch/list": {"get": _operation("listBranches", "All branches", None, answer)},
        f"{API}/branch/log": {
            "get": _operation(
                "branchLog", "Commits, newest first", None, answer, parameters=[number("limit", "How many.")]
            )
        },
        f"{API}/branch/diff": {
            "get": _operation("branchDiff", "What differs between two commits", None, answer, parameters=ends)
        },
        f"{API}/branch/rollback": {
            "post": _operation("rollBack", "Commit again what the branch held at a commit", commit, answer)
        },
        f"{API}/datasets": {"get": _operation("listDatasets", "The datasets of the branch", None, answer)},
        f"{API}/definition/{{name}}": {
            "get": _operation(
                "describe",
                "What a name stands for, where it comes from and who uses it",
                None,
                answer,
                parameters=[
                    {"name": "name", "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
                ],
            )
        },
        f"{API}/ledger": {
            "get": _operation(
                "ledger",
                "What is still to be done, and why it isn't",
                None,
                answer,
                parameters=[number("closed", "How many entries that are over.")],
            )
        },
    }


def _privacy() -> Json:
    """Return the paths of erasing and secrets."""
    named = [{"name": "name", "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}]
    keys = _json_body({"erase_keys": {"type": "array", "items": {"type": "object"}}}, ["erase_keys"])
    value = _json_body({"value": {"type": "string", "maxLength": MAX_VALUE}}, ["value"])
    nothing = {"content": {"application/json": {"schema": {"type": "object"}}}}
    answer = {"type": "object"}
    found = {"type": "object", "required": ["value"], "properties": {"value": {"type": "string"}}}
    return {
        f"{API}/dataset/{{name}}/erase": {
            "post": _operation("erase", "Erase keys, for the past and to come", keys, answer, parameters=named)
        },
        f"{API}/dataset/{{name}}/erasures": {
            "get": _operation("erasures", "What was erased, and where it is gone", None, answer, parameters=named)
        },
        f"{API}/secret/{{name}}": {
            "get": _operation("getSecret", "The value of a secret", None, found, parameters=named),
            "post": _operation("addSecret", "Keep a new secret", value, answer, parameters=named),
            "patch": _operation("updateSecret", "Change a secret", value, answer, parameters=named),
            "delete": _operation("deleteSecret", "Forget a secret", nothing, answer, parameters=named),
        },
        f"{API}/secrets": {"get": _operation("listSecrets", "Which secrets there are", None, answer)},
    }


def _dead_letters() -> Json:
    """Return the paths of dead letters."""
    named = [
        {
            "name": "name",
            "in": "path",
            "required": True,
            "schema": {"type": "string", "minLength": 1},
            "description": "Id of a dead letter, such as 0-17.",
        }
    ]
    asked = [
        {"name": "dataset", "in": "query", "schema": {"type": "string"}, "description": "Only those of a dataset."},
        {"name": "limit", "in": "query", "schema": {"type": "integer", "minimum": 1, "maximum": MAX_SHOWN}},
        {"name": "before", "in": "query", "schema": {"type": "string"}, "description": "`next` of an earlier answer."},
    ]
    nothing = {"content": {"application/json": {"schema": {"type": "object"}}}}
    answer = {"type": "object"}
    return {
        f"{API}/dead_letters": {
            "get": _operation("deadLetters", "Rows that were refused or failed", None, answer, parameters=asked)
        },
        f"{API}/dead_letters/{{name}}": {
            "get": _operation("deadLetter", "A dead letter with its row", None, answer, parameters=named)
        },
        f"{API}/dead_letters/{{name}}/replay": {
            "post": _operation("replay", "Send the row of a dead letter again, once", nothing, answer, parameters=named)
        },
    }


def _operation(
    name: str,
    summary: str,
    body: Json | None,
    answer: Json | None,
    *,
    parameters: list[Json] | None = None,
    other: str | None = None,
) -> Json:
    content: Json = {"text/plain": {}, "text/html": {}} if answer is None else {"application/json": {"schema": answer}}
    if other is not None:
        content[other] = {}
    of = OPERATIONS[name]
    refusal = {"application/json": {"schema": {"$ref": "#/components/schemas/Refusal"}}}
    found: Json = {
        "operationId": name,
        "summary": summary,
        "security": [{"bearer": []}] if of.needs_token else [],
        "responses": {
            "200": {"description": "Done", "content": content},
            **{str(status): {"description": STATUSES[status], "content": refusal} for status in of.statuses},
        },
    }
    asked = [*(parameters or ()), *([{"$ref": "#/components/parameters/Branch"}] if of.branch else ())]
    if body is not None:
        found["requestBody"] = body
    if asked:
        found["parameters"] = asked
    return found


def _json_body(properties: Json, required: list[str], *, other: str | None = None) -> Json:
    schema = {"type": "object", "properties": properties, "required": required}
    content: Json = {"application/json": {"schema": schema}}
    if other is not None:
        content[other] = {"schema": {"type": "string", "contentMediaType": other}}
    return {"required": True, "content": content}


DOCUMENT = document()


async def openapi(request: Request) -> HttpResponse:
    """Answer `GET /openapi.json`."""
    del request
    return json_response(DOCUMENT)


async def docs(request: Request) -> HttpResponse:
    """Answer `GET /docs`."""
    del request
    return text_response(page(), "text/html; charset=utf-8")


def page() -> str:
    """Return the document as HTML that loads nothing else."""
    parts = [
        f"<h2><code>{method.upper()} {escape(path)}</code></h2><p>{escape(found['summary'])}.</p>{_fields(found)}"
        for path, methods in DOCUMENT["paths"].items()
        for method, found in methods.items()
    ]
    refusals = "".join(f"<li><code>{status}</code> {escape(text)}</li>" for status, text in STATUSES.items())
    return (
        "<!doctype html><html lang=en><meta charset=utf-8><title>Caraway: REST API</title>"
        "<style>body{font:16px/1.5 system-ui;max-width:52rem;margin:2rem auto;padding:0 1rem}"
        "code{background:#f3f3f3;padding:.1em .3em}</style><h1>Caraway: REST API</h1>"
        f'<p>As <a href="{API}/openapi.json">OpenAPI</a>.</p>{"".join(parts)}'
        f"<h2>Refusals</h2><p>Each is <code>{{err_msg, code}}</code>.</p><ul>{refusals}</ul></html>"
    )


def _fields(operation: Json) -> str:
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    items = [
        f"<li><code>{escape(name)}</code>{'' if name in body['required'] else ' (optional)'} "
        f"{escape(schema.get('description', ''))}</li>"
        for name, schema in body.get("properties", {}).items()
    ]
    return f"<ul>{''.join(items)}</ul>" if items else ""
