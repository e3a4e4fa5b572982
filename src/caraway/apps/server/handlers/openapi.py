"""The REST surface as an OpenAPI document, and a page that shows it; both derive from the table of endpoints."""

import re
from collections.abc import Iterable, Mapping
from html import escape
from importlib.metadata import version
from inspect import getdoc
from typing import Any, Final

import msgspec

from caraway.apps.server.handlers.context import ServerContext
from caraway.apps.server.http.bodies import Nothing
from caraway.apps.server.http.endpoints import API, JSON, Endpoint
from caraway.apps.server.http.messages import HttpResponse, Request, json_response, text_response
from caraway.state.model import MAIN

Json = dict[str, Any]

STATUSES: Final[Mapping[int, str]] = {
    400: "The body, a row or a value doesn't fit",
    401: "There is no token, or it isn't valid",
    403: "The roles of the token's account don't allow it, or a web page of another site asks",
    404: "There is no such dataset, feature, endpoint or branch",
    408: "The body doesn't come",
    409: "Somebody else committed meanwhile, or the key was used with another body",
    413: "Too many bytes or rows",
    415: "The path doesn't take a body of this type",
    422: "User code failed, or not one row fits",
    429: "Too many requests are under way, or what is computed from the rows is too far behind; see Retry-After",
    431: "The head of the request, with its query string, is too long",
    500: "The server failed",
    503: "A part is away",
    504: "It took too long",
}
# Statuses that every endpoint except the health check documents: 403 if a page of another site or a foreign host asks
# (`caraway.apps.server.access.sites`), 429 if a caller has too many requests under way, 504 if the deadline is missed
# (both in `caraway.apps.server.app`), 500 and 503 if the server or one of its processes fails.
OF_ALL: Final = frozenset({403, 429, 500, 503, 504})
# Statuses of the health check, which is open to everybody: neither `Host`, nor a token, nor the limits of a caller are
# checked.
OF_A_PROBE: Final = frozenset({500, 503})
# Statuses of endpoints that read a body: 400 for a damaged one, 408 for a slow one, 413 for one that is too large, and
# 415 for one of another media type.
OF_A_BODY: Final = frozenset({400, 408, 413, 415})
# Statuses of endpoints that read a query string.
OF_A_QUERY: Final = frozenset({400, 431})
# Statuses with which the HTTP server answers before Caraway sees the request, so without a body.
BARE: Final = frozenset({431})

SCHEMAS = "#/components/schemas/"
BYTES: Json = {"type": "string", "format": "binary"}
REFUSAL: Json = {
    "type": "object",
    "required": ["err_msg", "code"],
    "properties": {"err_msg": {"type": "string"}, "code": {"type": "string"}, "request_id": {"type": "string"}},
}
# The header that names the branch. The server also accepts the header of Fennel's API, which the document leaves out.
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
NAME: Json = {"name": "name", "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}


def statuses(endpoint: Endpoint) -> list[int]:
    """Return the statuses that an endpoint can answer, besides 200."""
    found = set(OF_A_PROBE if endpoint.probe else OF_ALL).union(endpoint.refusals)
    if endpoint.takes_body:
        found |= OF_A_BODY
    if endpoint.parameters is not Nothing:
        found |= OF_A_QUERY
    if not endpoint.permission.public:
        found.add(401)
    # Status 404 means that a branch, or an entity that the path names, doesn't exist.
    if endpoint.permission.on_branch or "{" in endpoint.path:
        found.add(404)
    return sorted(found)


def document(endpoints: Iterable[Endpoint]) -> Json:
    """Return the document of endpoints."""
    listed = tuple(endpoints)
    types = [form for each in listed for form in (each.body, each.parameters, each.answer) if form is not None]
    found, components = msgspec.json.schema_components(types, ref_template=SCHEMAS + "{name}")
    schemas = dict(zip(types, found, strict=True))
    for schema in components.values():
        schema["description"] = schema["description"].partition("\n")[0]
    # The members of a query string are listed as parameters of operations, so its schema is taken out of the
    # components.
    queries = {form: components.pop(form.__name__) for form in {each.parameters for each in listed}}
    paths: Json = {}
    for endpoint in listed:
        operation = _operation(endpoint, schemas, queries[endpoint.parameters])
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = operation
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
            "schemas": {"Refusal": REFUSAL, **components},
        },
        "paths": paths,
    }


def _operation(endpoint: Endpoint, schemas: Mapping[object, Json], query: Json) -> Json:
    name = endpoint.handler.__name__
    parameters = [
        *([NAME] if "{name}" in endpoint.path else []),
        *(_parameter(name, schema, query["required"]) for name, schema in query["properties"].items()),
        *endpoint.headers,
        *([{"$ref": "#/components/parameters/Branch"}] if endpoint.permission.on_branch else []),
    ]
    refusal = {JSON: {"schema": {"$ref": f"{SCHEMAS}Refusal"}}}
    others = {media: {"schema": BYTES} for media in endpoint.accepts if media != JSON}
    content: Json = {"text/plain": {}, "text/html": {}}
    if endpoint.answer is not None:
        # An endpoint that accepts another media type besides JSON, as queries accept Arrow, can answer in that type,
        # too.
        content = {JSON: {"schema": schemas[endpoint.answer]}, **(others if JSON in endpoint.accepts else {})}
    operation: Json = {
        "operationId": endpoint.operation or re.sub("_(.)", lambda found: found[1].upper(), name),
        "summary": (getdoc(endpoint.handler) or name).partition("\n")[0].removesuffix("."),
        "security": [] if endpoint.permission.public else [{"bearer": []}],
        "responses": {
            "200": {"description": "Done", "content": content},
            **{
                str(status): {"description": STATUSES[status], **({} if status in BARE else {"content": refusal})}
                for status in statuses(endpoint)
            },
        },
    }
    if endpoint.takes_body:
        body = {"type": "object"} if endpoint.body is Nothing else schemas[endpoint.body]
        given = {JSON: {"schema": body}, **others} if JSON in endpoint.accepts else others
        operation["requestBody"] = {"required": given != {JSON: {"schema": {"type": "object"}}}, "content": given}
    if parameters:
        operation["parameters"] = parameters
    return operation


def _parameter(name: str, schema: Json, required: list[str]) -> Json:
    # The schema of a parameter that may be null has `anyOf` with its type and null. Null means that the parameter is
    # left out of the query string, where the text "null" has no meaning. So the document shows only the type.
    plain = {member: value for member, value in schema.items() if member not in {"anyOf", "default", "description"}}
    plain |= schema.get("anyOf", [{}])[0]
    return {
        "name": name,
        "in": "query",
        "required": name in required,
        "schema": plain,
        "description": schema["description"],
    }


async def openapi(context: ServerContext, request: Request) -> HttpResponse:
    """Return this document."""
    return json_response(context.document)


async def docs(context: ServerContext, request: Request) -> HttpResponse:
    """Return this document as a page."""
    return text_response(page(context.document), "text/html; charset=utf-8")


def page(found: Json) -> str:
    """Return a document as HTML that loads nothing else."""
    parts = [
        f"<h2><code>{method.upper()} {escape(path)}</code></h2><p>{escape(of['summary'])}.</p>{_fields(of, found)}"
        for path, methods in found["paths"].items()
        for method, of in methods.items()
    ]
    refusals = "".join(f"<li><code>{status}</code> {escape(text)}</li>" for status, text in STATUSES.items())
    return (
        "<!doctype html><html lang=en><meta charset=utf-8><title>Caraway: REST API</title>"
        "<style>body{font:16px/1.5 system-ui;max-width:52rem;margin:2rem auto;padding:0 1rem}"
        "code{background:#f3f3f3;padding:.1em .3em}</style><h1>Caraway: REST API</h1>"
        f'<p>As <a href="{API}/openapi.json">OpenAPI</a>.</p>{"".join(parts)}'
        f"<h2>Refusals</h2><p>Each is <code>{{err_msg, code}}</code>.</p><ul>{refusals}</ul></html>"
    )


def _fields(operation: Json, found: Json) -> str:
    """Return the members of a body as a list."""
    schema = operation.get("requestBody", {}).get("content", {}).get(JSON, {}).get("schema", {})
    body = found["components"]["schemas"].get(schema.get("$ref", "").removeprefix(SCHEMAS), {})
    items = [
        f"<li><code>{escape(name)}</code>{'' if name in body['required'] else ' (optional)'} "
        f"{escape(member['description'])}</li>"
        for name, member in body.get("properties", {}).items()
    ]
    return f"<ul>{''.join(items)}</ul>" if items else ""
