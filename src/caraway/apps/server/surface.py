"""The REST surface: one row for each endpoint, from which gate, metrics, document and readers derive."""

from typing import Any

from caraway.apps.server.access.limits import AccessLimits
from caraway.apps.server.deployment import Deployment
from caraway.apps.server.handlers import (
    accounts,
    admin,
    archive,
    branches,
    dataset_drift,
    dead_letters,
    definitions,
    drift,
    erase,
    expectations,
    feast,
    freshness,
    inspection,
    jobs,
    offline,
    openapi,
    problems,
    reads,
    secrets,
    skew,
    sources,
    waiting,
    why,
    writes,
)
from caraway.apps.server.handlers.arrow import CONTENT_TYPE as ARROW
from caraway.apps.server.handlers.context import ServerContext
from caraway.apps.server.http.bodies import Values
from caraway.apps.server.http.endpoints import (
    ADMINISTRATION,
    ANY_TOKEN,
    API,
    JSON,
    PROTOBUF,
    PUBLIC,
    Endpoint,
    Permission,
    Scope,
    bound,
)
from caraway.apps.server.pages.surface import pages
from caraway.apps.server.tracing.writing import TracingWriter
from caraway.compute.query.explain import QueryExplained
from caraway.dataplane.ingest.service import IngestService
from caraway.state.permissions import Mode

READ_DATA, WRITE_DATA = Permission((Mode.READ_DATA,)), Permission((Mode.WRITE_DATA,))
READ_DEFINITION, WRITE_DEFINITION = Permission((Mode.READ_DEFINITION,)), Permission((Mode.WRITE_DEFINITION,))
READ_DEFINITION_ANYWHERE = Permission((Mode.READ_DEFINITION,), Scope.ANY_BRANCH)
READ_SECRETS = Permission((Mode.READ_DATA,), Scope.EVERYTHING)
WRITE_SECRETS = Permission((Mode.WRITE_DATA,), Scope.EVERYTHING)
# A caller needs only one of these modes. `POST /wait` reports which jobs and indexes of a branch lag. Everybody who may
# log to the branch or query it may know that.
ANY_MODE = Permission(tuple(Mode))

ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint(
        "POST",
        f"{API}/query",
        reads.query,
        READ_DATA,
        target="extract_features",
        answer=dict[str, Values],
        accepts=(JSON, ARROW),
        reads=True,
        refusals=(422,),
    ),
    Endpoint(
        "POST",
        f"{API}/query/explain",
        reads.explain_query,
        READ_DATA,
        answer=QueryExplained,
        reads=True,
        refusals=(422,),
    ),
    Endpoint(
        "POST",
        "/get-online-features",
        feast.get_online_features,
        READ_DATA,
        target="extract_features",
        answer=feast.OnlineFeatures,
        reads=True,
        refusals=(422,),
    ),
    Endpoint("POST", f"{API}/dataset/{{name}}/lookup", reads.lookup, READ_DATA, answer=reads.LookupAnswer, reads=True),
    # Status 409: the idempotency key was used before with another body. Status 422: the request has rows, and no
    # dataset accepted any of them.
    Endpoint(
        "POST",
        f"{API}/log",
        writes.log,
        WRITE_DATA,
        answer=writes.LogAnswer,
        headers=(writes.IDEMPOTENCY,),
        refusals=(409, 422),
    ),
    Endpoint(
        "POST",
        f"{API}/query_offline",
        offline.query_offline,
        READ_DATA,
        target="extract_historical_features",
        answer=offline.OfflineAnswer,
        accepts=(JSON, ARROW),
        recorded=True,
    ),
    Endpoint("GET", f"{API}/query_offline/status", offline.offline_status, READ_DATA, answer=offline.OfflineAnswer),
    Endpoint(
        "POST",
        f"{API}/query_offline/cancel",
        offline.cancel_offline,
        READ_DATA,
        answer=offline.OfflineAnswer,
        recorded=True,
        refusals=(404,),
    ),
    Endpoint("GET", f"{API}/query_offline/list", offline.list_offline, READ_DATA, answer=offline.OfflineList),
    Endpoint("GET", f"{API}/query_offline/explain", offline.explain_offline, READ_DATA, answer=offline.ExplainAnswer),
    Endpoint("GET", f"{API}/query_offline/result", offline.offline_result, READ_DATA, answer=None),
    Endpoint("POST", f"{API}/why", why.why, READ_DATA, answer=why.WhyAnswer, recorded=True),
    Endpoint("GET", f"{API}/why", why.why_answer, READ_DATA, answer=why.WhyAnswer, refusals=(404,)),
    Endpoint("POST", f"{API}/wait", waiting.wait, ANY_MODE, answer=waiting.WaitAnswer),
    Endpoint(
        "POST",
        f"{API}/commit",
        writes.commit,
        WRITE_DEFINITION,
        target="sync",
        answer=writes.CommitAnswer,
        accepts=PROTOBUF,
        recorded=True,
        refusals=(409,),
    ),
    Endpoint(
        "POST",
        f"{API}/source/try",
        sources.try_sources,
        WRITE_DEFINITION,
        answer=sources.TrialsAnswer,
        accepts=PROTOBUF,
        recorded=True,
        refusals=(404, 422),
    ),
    Endpoint("POST", f"{API}/init", branches.init_branch, WRITE_DEFINITION, recorded=True, refusals=(409,)),
    Endpoint("POST", f"{API}/delete", branches.delete_branch, WRITE_DEFINITION, recorded=True, refusals=(409,)),
    Endpoint("GET", f"{API}/branch/list", branches.list_branches, READ_DEFINITION_ANYWHERE, answer=branches.Branches),
    Endpoint("GET", f"{API}/branch/log", branches.branch_log, READ_DEFINITION, answer=branches.History),
    Endpoint("GET", f"{API}/branch/diff", branches.branch_diff, READ_DEFINITION_ANYWHERE, refusals=(404,)),
    Endpoint("POST", f"{API}/branch/rollback", branches.roll_back, WRITE_DEFINITION, recorded=True, refusals=(409,)),
    Endpoint("POST", f"{API}/branch/promote", branches.promote, WRITE_DEFINITION, recorded=True, refusals=(409,)),
    Endpoint(
        "POST",
        f"{API}/job/pause",
        jobs.pause_job,
        WRITE_DEFINITION,
        answer=jobs.PauseAnswer,
        recorded=True,
        refusals=(404,),
    ),
    Endpoint("GET", f"{API}/datasets", definitions.list_datasets, READ_DEFINITION),
    Endpoint("GET", f"{API}/features", definitions.list_features, READ_DEFINITION),
    Endpoint("GET", f"{API}/definition/{{name}}", definitions.describe, READ_DEFINITION),
    Endpoint("GET", f"{API}/xray", inspection.xray, READ_DEFINITION, answer=inspection.XrayAnswer, refusals=(404,)),
    Endpoint("GET", f"{API}/lineage", inspection.lineage, READ_DEFINITION, answer=inspection.LineageAnswer),
    Endpoint("GET", f"{API}/dataset/{{name}}/inspect", inspection.inspect, READ_DATA, answer=list[dict[str, Any]]),
    Endpoint("GET", f"{API}/ledger", branches.ledger, READ_DEFINITION_ANYWHERE),
    Endpoint("GET", f"{API}/archive", archive.archive, READ_DEFINITION, answer=archive.ArchiveAnswer),
    Endpoint("GET", f"{API}/skew", skew.skew, READ_DATA, answer=skew.SkewAnswer, refusals=(404,)),
    Endpoint("GET", f"{API}/drift", drift.drift, READ_DATA, answer=drift.DriftAnswer, refusals=(404,)),
    Endpoint("GET", f"{API}/drift/findings", drift.drift_findings, READ_DATA, answer=drift.FindingsAnswer),
    Endpoint(
        "GET",
        f"{API}/drift/profiles",
        drift.drift_profiles,
        READ_DATA,
        answer=drift.ProfilesAnswer,
        refusals=(404,),
    ),
    Endpoint(
        "GET",
        f"{API}/drift/datasets",
        dataset_drift.dataset_findings,
        READ_DATA,
        answer=dataset_drift.DatasetFindingsAnswer,
    ),
    Endpoint(
        "GET",
        f"{API}/drift/datasets/{{name}}",
        dataset_drift.dataset_drift,
        READ_DATA,
        answer=dataset_drift.DatasetDriftAnswer,
        refusals=(404,),
    ),
    Endpoint(
        "GET",
        f"{API}/drift/datasets/{{name}}/profile",
        dataset_drift.dataset_profile,
        READ_DATA,
        answer=dataset_drift.DatasetProfileAnswer,
        refusals=(404,),
    ),
    Endpoint(
        "POST",
        f"{API}/drift/reference",
        drift.set_reference,
        WRITE_DEFINITION,
        answer=drift.ReferenceAnswer,
        recorded=True,
    ),
    Endpoint(
        "GET",
        f"{API}/expectations",
        expectations.expectations,
        READ_DATA,
        answer=expectations.ExpectationsAnswer,
        refusals=(404,),
    ),
    Endpoint("POST", f"{API}/dataset/{{name}}/erase", erase.erase, WRITE_DATA, recorded=True, refusals=(409,)),
    Endpoint("GET", f"{API}/dataset/{{name}}/erasures", erase.erasures, READ_DEFINITION),
    # Reads of a secret are recorded in the audit log, as changes are, because its reader can use the secret anywhere.
    Endpoint(
        "GET",
        f"{API}/secret/{{name}}",
        secrets.get_secret,
        READ_SECRETS,
        answer=secrets.SecretBody,
        recorded=True,
        refusals=(400,),
    ),
    Endpoint("POST", f"{API}/secret/{{name}}", secrets.add_secret, WRITE_SECRETS, recorded=True, refusals=(409,)),
    Endpoint("PATCH", f"{API}/secret/{{name}}", secrets.update_secret, WRITE_SECRETS, recorded=True),
    Endpoint("DELETE", f"{API}/secret/{{name}}", secrets.delete_secret, WRITE_SECRETS, recorded=True),
    Endpoint("GET", f"{API}/secrets", secrets.list_secrets, READ_DEFINITION_ANYWHERE),
    Endpoint("GET", f"{API}/dead_letters", dead_letters.dead_letters, READ_DATA),
    Endpoint("GET", f"{API}/dead_letters/{{name}}", dead_letters.dead_letter, READ_DATA, refusals=(400,)),
    Endpoint(
        "POST",
        f"{API}/dead_letters/{{name}}/replay",
        dead_letters.replay,
        WRITE_DATA,
        recorded=True,
        refusals=(409, 422),
    ),
    Endpoint(
        "GET", f"{API}/tokens", accounts.list_tokens, ADMINISTRATION, answer=accounts.TokensAnswer, refusals=(409,)
    ),
    # Changes of tokens aren't `recorded`, since each change writes its line of the audit log in its own transaction.
    Endpoint(
        "POST",
        f"{API}/tokens",
        accounts.create_token,
        ADMINISTRATION,
        answer=accounts.NewToken,
        refusals=(404, 409),
    ),
    Endpoint(
        "DELETE",
        f"{API}/token/{{name}}",
        accounts.revoke_token,
        ADMINISTRATION,
        answer=accounts.RevokedToken,
        refusals=(409,),
    ),
    Endpoint("GET", f"{API}/roles", accounts.list_roles, ADMINISTRATION, answer=accounts.RolesAnswer, refusals=(409,)),
    Endpoint("GET", f"{API}/audit", accounts.list_audit, ADMINISTRATION, answer=accounts.AuditAnswer),
    Endpoint("GET", f"{API}/sign-in", accounts.sign_in, PUBLIC, answer=accounts.SignInAnswer, refusals=(409,)),
    Endpoint("GET", f"{API}/health", admin.health, PUBLIC, probe=True),
    Endpoint("GET", f"{API}/status", admin.status, READ_DEFINITION_ANYWHERE),
    Endpoint("GET", f"{API}/problems", problems.problems, READ_DEFINITION),
    Endpoint("GET", f"{API}/freshness", freshness.freshness, READ_DEFINITION, answer=freshness.FreshnessAnswer),
    Endpoint(
        "GET",
        f"{API}/freshness/history",
        freshness.freshness_history,
        READ_DEFINITION,
        answer=freshness.FreshnessHistory,
    ),
    Endpoint("GET", f"{API}/metrics", admin.metrics, ANY_TOKEN, answer=None),
    Endpoint("GET", "/metrics", admin.metrics, ANY_TOKEN, answer=None, operation="metricsAtTheRoot"),
    Endpoint("GET", f"{API}/openapi.json", openapi.openapi, PUBLIC),
    Endpoint("GET", f"{API}/docs", openapi.docs, PUBLIC, answer=None),
    Endpoint("GET", "/", admin.root, PUBLIC, answer=None),
)
# If a server has several processes (`caraway.apps.server.workers`), its readers answer these endpoints themselves, and
# pass all other requests on to the writer.
READS = tuple(endpoint for endpoint in ENDPOINTS if endpoint.reads)
DOCUMENT = openapi.document(ENDPOINTS)


def endpoints(deployment: Deployment) -> tuple[Endpoint, ...]:
    """Return all endpoints and the pages of the console, answered by a deployment."""
    context = ServerContext(
        limits=AccessLimits(deployment.graphs),
        keep=deployment.topics.served.keep,
        deployment=deployment,
        ingest=IngestService(
            deployment.topics.writer,
            deployment.topics.servers,
            deployment.erasure.erased,
            deployment.topics.backpressure,
            process=deployment.topics.intake,
            is_closed=deployment.connectors.sources.receipts.is_closed,
            traced=None if deployment.tracer is None else TracingWriter,
        ),
        document=DOCUMENT,
    )
    answered = bound(ENDPOINTS, context)
    return (*answered, *pages(context, answered))
