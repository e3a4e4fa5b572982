"""The REST surface: the table of methods, paths and handlers."""

from caraway.server.access.limits import AccessLimits
from caraway.server.deployment import Deployment
from caraway.server.handlers.admin import Admin
from caraway.server.handlers.arrow import CONTENT_TYPE as ARROW
from caraway.server.handlers.branches import BranchRoutes
from caraway.server.handlers.dead_letters import DeadLetterRoutes
from caraway.server.handlers.definitions import DefinitionRoutes
from caraway.server.handlers.erase import EraseRoutes
from caraway.server.handlers.explanations import Explanations
from caraway.server.handlers.feast import FeastEndpoint
from caraway.server.handlers.openapi import docs, openapi
from caraway.server.handlers.queries import Queries
from caraway.server.handlers.reads import Reads
from caraway.server.handlers.secrets import SecretRoutes
from caraway.server.handlers.waiting import Waits
from caraway.server.handlers.writes import Api
from caraway.server.http.routes import API, JSON, PROTOBUF, Route


def routes(deployment: Deployment) -> tuple[Route, ...]:
    """Return all routes."""
    queries = Queries()
    graphs = deployment.graphs
    limits = AccessLimits(graphs)
    branches = BranchRoutes(deployment, limits)
    api, admin = Api(deployment, limits), Admin(deployment)
    secrets = SecretRoutes(deployment.secrets)
    erase = EraseRoutes(
        graphs,
        limits,
        deployment.eraser,
        log=deployment.erasures,
        keyring=deployment.keyring,
        needed=lambda: graphs.needed,
    )
    reads, feast = Reads(limits, queries, deployment.served.keep), FeastEndpoint(limits, queries)
    dead_letters = DeadLetterRoutes(
        graphs,
        limits,
        api.ingest,
        bootstrap_servers=deployment.bootstrap_servers,
        erased=deployment.erased,
        replays=deployment.replays,
    )
    definitions = DefinitionRoutes(graphs, deployment.index.positions)
    return (
        Route("POST", f"{API}/query", reads.query, "extract_features", (JSON, ARROW)),
        Route("POST", f"{API}/query/explain", Explanations(limits, queries).explain, "explain_query"),
        Route("POST", "/get-online-features", feast.get_online_features, "extract_features"),
        Route("POST", f"{API}/log", api.log, "log"),
        Route("POST", f"{API}/wait", Waits(deployment).wait, "wait"),
        Route("POST", f"{API}/commit", api.commit, "sync", PROTOBUF),
        Route("POST", f"{API}/dataset/{{name}}/lookup", reads.lookup, "lookup"),
        Route("POST", f"{API}/dataset/{{name}}/erase", erase.erase, "erase"),
        Route("GET", f"{API}/dataset/{{name}}/erasures", erase.erasures, "erasures"),
        Route("GET", f"{API}/secret/{{name}}", secrets.get, "get_secret"),
        Route("POST", f"{API}/secret/{{name}}", secrets.add, "add_secret"),
        Route("PATCH", f"{API}/secret/{{name}}", secrets.update, "update_secret"),
        Route("DELETE", f"{API}/secret/{{name}}", secrets.delete, "delete_secret"),
        Route("GET", f"{API}/secrets", secrets.list, "list_secrets"),
        Route("POST", f"{API}/init", branches.init, "init_branch"),
        Route("POST", f"{API}/delete", branches.delete, "delete_branch"),
        Route("GET", f"{API}/branch/list", branches.list, "list_branches"),
        Route("GET", f"{API}/branch/log", branches.history, "branch_log"),
        Route("GET", f"{API}/branch/diff", branches.diff, "branch_diff"),
        Route("POST", f"{API}/branch/rollback", branches.roll_back, "roll_back"),
        Route("GET", f"{API}/dead_letters", dead_letters.list, "dead_letters"),
        Route("GET", f"{API}/dead_letters/{{name}}", dead_letters.show, "dead_letter"),
        Route("POST", f"{API}/dead_letters/{{name}}/replay", dead_letters.replay, "replay"),
        Route("GET", f"{API}/datasets", definitions.datasets, "list_datasets"),
        Route("GET", f"{API}/definition/{{name}}", definitions.definition, "describe"),
        Route("GET", f"{API}/ledger", branches.ledger, "ledger"),
        Route("GET", f"{API}/health", admin.health, "health"),
        Route("GET", f"{API}/status", admin.status, "status"),
        Route("GET", f"{API}/metrics", admin.metrics, "metrics"),
        Route("GET", f"{API}/openapi.json", openapi, "openapi"),
        Route("GET", f"{API}/docs", docs, "docs"),
        Route("GET", "/metrics", admin.metrics, "metrics"),
        Route("GET", "/", admin.root, "root"),
    )
