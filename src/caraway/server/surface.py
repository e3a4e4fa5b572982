"""The REST surface: one row for each endpoint, from which gate, metrics, document and readers derive."""

from collections.abc import Callable

from caraway.query.explain import QueryExplained
from caraway.server.access.limits import AccessLimits
from caraway.server.deployment import Deployment
from caraway.server.handlers.admin import Admin
from caraway.server.handlers.arrow import CONTENT_TYPE as ARROW
from caraway.server.handlers.branches import (
    Branches,
    BranchRoutes,
    DiffParameters,
    History,
    InitBody,
    LedgerParameters,
    LogParameters,
    RollbackBody,
    RollbackParameters,
)
from caraway.server.handlers.dead_letters import DeadLetterRoutes, DeadLettersParameters
from caraway.server.handlers.definitions import DefinitionRoutes
from caraway.server.handlers.erase import EraseBody, EraseRoutes
from caraway.server.handlers.feast import FeastEndpoint, OnlineFeatures, OnlineFeaturesBody
from caraway.server.handlers.openapi import Documents, document
from caraway.server.handlers.queries import Queries
from caraway.server.handlers.reads import ArrowParameters, ExplainBody, LookupAnswer, LookupBody, QueryBody, Reads
from caraway.server.handlers.secrets import SecretBody, SecretRoutes
from caraway.server.handlers.waiting import WaitAnswer, WaitBody, Waits
from caraway.server.handlers.writes import IDEMPOTENCY, Api, CommitAnswer, CommitParameters, LogAnswer, LogBody
from caraway.server.http.bodies import Values
from caraway.server.http.endpoints import ANY_TOKEN, API, JSON, PROTOBUF, PUBLIC, Endpoint, Permission, Scope, bound
from caraway.server.served_graph import Serving
from caraway.state.permissions import Mode

READ_DATA, WRITE_DATA = Permission((Mode.READ_DATA,)), Permission((Mode.WRITE_DATA,))
READ_DEFINITION, WRITE_DEFINITION = Permission((Mode.READ_DEFINITION,)), Permission((Mode.WRITE_DEFINITION,))
READ_DEFINITION_ANYWHERE = Permission((Mode.READ_DEFINITION,), Scope.ANY_BRANCH)
READ_SECRETS = Permission((Mode.READ_DATA,), Scope.EVERYTHING)
WRITE_SECRETS = Permission((Mode.WRITE_DATA,), Scope.EVERYTHING)
# A caller who may log or query may know whether the branch has caught up.
ANY_MODE = Permission(tuple(Mode))

ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint(
        "POST",
        f"{API}/query",
        Reads.query,
        READ_DATA,
        target="extract_features",
        body=QueryBody,
        parameters=ArrowParameters,
        answer=dict[str, Values],
        accepts=(JSON, ARROW),
        reads=True,
        refusals=(422,),
    ),
    Endpoint(
        "POST",
        f"{API}/query/explain",
        Reads.explain_query,
        READ_DATA,
        body=ExplainBody,
        answer=QueryExplained,
        reads=True,
        refusals=(422,),
    ),
    Endpoint(
        "POST",
        "/get-online-features",
        FeastEndpoint.get_online_features,
        READ_DATA,
        target="extract_features",
        body=OnlineFeaturesBody,
        answer=OnlineFeatures,
        reads=True,
        refusals=(422,),
    ),
    Endpoint("POST", f"{API}/dataset/{{name}}/lookup", Reads.lookup, READ_DATA, LookupBody, LookupAnswer, reads=True),
    # Status 409 is for an idempotency key that was used with another body, 422 for a request with no row that fits.
    Endpoint(
        "POST", f"{API}/log", Api.log, WRITE_DATA, LogBody, LogAnswer, headers=(IDEMPOTENCY,), refusals=(409, 422)
    ),
    Endpoint("POST", f"{API}/wait", Waits.wait, ANY_MODE, WaitBody, WaitAnswer),
    Endpoint(
        "POST",
        f"{API}/commit",
        Api.commit,
        WRITE_DEFINITION,
        target="sync",
        parameters=CommitParameters,
        answer=CommitAnswer,
        accepts=PROTOBUF,
        recorded=True,
        refusals=(409,),
    ),
    Endpoint(
        "POST", f"{API}/init", BranchRoutes.init_branch, WRITE_DEFINITION, InitBody, recorded=True, refusals=(409,)
    ),
    Endpoint("POST", f"{API}/delete", BranchRoutes.delete_branch, WRITE_DEFINITION, recorded=True, refusals=(409,)),
    Endpoint("GET", f"{API}/branch/list", BranchRoutes.list_branches, READ_DEFINITION_ANYWHERE, answer=Branches),
    Endpoint(
        "GET",
        f"{API}/branch/log",
        BranchRoutes.branch_log,
        READ_DEFINITION,
        parameters=LogParameters,
        answer=History,
    ),
    Endpoint(
        "GET",
        f"{API}/branch/diff",
        BranchRoutes.branch_diff,
        READ_DEFINITION_ANYWHERE,
        parameters=DiffParameters,
        refusals=(404,),
    ),
    Endpoint(
        "POST",
        f"{API}/branch/rollback",
        BranchRoutes.roll_back,
        WRITE_DEFINITION,
        RollbackBody,
        parameters=RollbackParameters,
        recorded=True,
        refusals=(409,),
    ),
    Endpoint("GET", f"{API}/datasets", DefinitionRoutes.list_datasets, READ_DEFINITION),
    Endpoint("GET", f"{API}/definition/{{name}}", DefinitionRoutes.describe, READ_DEFINITION),
    Endpoint("GET", f"{API}/ledger", BranchRoutes.ledger, READ_DEFINITION_ANYWHERE, parameters=LedgerParameters),
    Endpoint(
        "POST",
        f"{API}/dataset/{{name}}/erase",
        EraseRoutes.erase,
        WRITE_DATA,
        EraseBody,
        recorded=True,
        refusals=(409,),
    ),
    Endpoint("GET", f"{API}/dataset/{{name}}/erasures", EraseRoutes.erasures, READ_DEFINITION),
    # A secret that was read can be used elsewhere, so that reading one is recorded, too.
    Endpoint(
        "GET",
        f"{API}/secret/{{name}}",
        SecretRoutes.get_secret,
        READ_SECRETS,
        answer=SecretBody,
        recorded=True,
        refusals=(400,),
    ),
    Endpoint(
        "POST",
        f"{API}/secret/{{name}}",
        SecretRoutes.add_secret,
        WRITE_SECRETS,
        SecretBody,
        recorded=True,
        refusals=(409,),
    ),
    Endpoint("PATCH", f"{API}/secret/{{name}}", SecretRoutes.update_secret, WRITE_SECRETS, SecretBody, recorded=True),
    Endpoint("DELETE", f"{API}/secret/{{name}}", SecretRoutes.delete_secret, WRITE_SECRETS, recorded=True),
    Endpoint("GET", f"{API}/secrets", SecretRoutes.list_secrets, READ_DEFINITION_ANYWHERE),
    Endpoint("GET", f"{API}/dead_letters", DeadLetterRoutes.dead_letters, READ_DATA, parameters=DeadLettersParameters),
    Endpoint("GET", f"{API}/dead_letters/{{name}}", DeadLetterRoutes.dead_letter, READ_DATA, refusals=(400,)),
    Endpoint(
        "POST",
        f"{API}/dead_letters/{{name}}/replay",
        DeadLetterRoutes.replay,
        WRITE_DATA,
        recorded=True,
        refusals=(409, 422),
    ),
    Endpoint("GET", f"{API}/health", Admin.health, PUBLIC, probe=True),
    Endpoint("GET", f"{API}/status", Admin.status, READ_DEFINITION_ANYWHERE),
    Endpoint("GET", f"{API}/metrics", Admin.metrics, ANY_TOKEN, answer=None),
    Endpoint("GET", "/metrics", Admin.metrics, ANY_TOKEN, answer=None, operation="metricsAtTheRoot"),
    Endpoint("GET", f"{API}/openapi.json", Documents.openapi, PUBLIC),
    Endpoint("GET", f"{API}/docs", Documents.docs, PUBLIC, answer=None),
    Endpoint("GET", "/", Admin.root, PUBLIC, answer=None),
)
# The endpoints that processes that only read answer themselves.
READS = tuple(endpoint for endpoint in ENDPOINTS if endpoint.reads)
DOCUMENT = document(ENDPOINTS)


def readers(serving: Serving, keep: Callable[..., None]) -> tuple[object, ...]:
    """Return the objects whose methods answer `READS`; `keep` is called with queries that are to be kept."""
    queries, limits = Queries(), AccessLimits(serving)
    return Reads(limits, queries, keep), FeastEndpoint(limits, queries)


def endpoints(deployment: Deployment) -> tuple[Endpoint, ...]:
    """Return all endpoints, answered by a deployment."""
    limits = AccessLimits(deployment.graphs)
    api = Api(deployment, limits)
    return bound(
        ENDPOINTS,
        *readers(deployment.graphs, deployment.served.keep),
        api,
        Waits(deployment),
        BranchRoutes(deployment, limits),
        DefinitionRoutes(deployment),
        EraseRoutes(deployment, limits),
        SecretRoutes(deployment.secrets),
        DeadLetterRoutes(deployment, limits, api.ingest),
        Admin(deployment),
        Documents(DOCUMENT),
    )
