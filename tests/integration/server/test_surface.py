"""Random requests of each operation show that the OpenAPI document holds."""

from copy import deepcopy
from typing import Any

import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.core import NotSet
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from caraway.apps.server.handlers.arrow import CONTENT_TYPE as ARROW
from caraway.apps.server.surface import DOCUMENT
from tests.effort import examples
from tests.integration.server.server_process import ServerProcess

# Random definitions could be a commit that empties the branch of the other tests. On branches of random names nothing
# is made or deleted: the server keeps them for later tests.
WITHOUT_COMMIT: dict[str, Any] = deepcopy(
    {
        **DOCUMENT,
        "paths": {path: of for path, of in DOCUMENT["paths"].items() if not path.endswith(("commit", "source/try"))},
    }
)
for path in ("init", "delete", "branch/rollback", "branch/promote"):
    del WITHOUT_COMMIT["paths"][f"/api/v1/{path}"]["post"]["parameters"]
CHECKS = [
    not_a_server_error,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
]
# No engine runs here, so each request would wait to its limit.
_SECONDS = WITHOUT_COMMIT["components"]["schemas"]["WaitBody"]["properties"]["seconds"]
_LONGEST_S = _SECONDS["maximum"]
_SECONDS["maximum"] = 0.1
surface = schemathesis.openapi.from_dict(WITHOUT_COMMIT)


@schemathesis.serializer(ARROW)
def bytes_as_they_are(_context: Any, value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


@surface.parametrize()
@settings(max_examples=examples(25), deadline=None, suppress_health_check=list(HealthCheck))
def test_the_document_holds(case: Any, server: ServerProcess) -> None:
    if case.path == "/api/v1/wait":
        # A request that states no limit waits for 10 s.
        if isinstance(case.body, NotSet):
            case.body, case.media_type = {}, "application/json"
        if isinstance(case.body, dict):
            seconds = case.body.setdefault("seconds", 0.1)
            if isinstance(seconds, (int, float)) and 0.1 < seconds <= _LONGEST_S:
                case.body["seconds"] = 0.1
    case.call_and_validate(base_url=str(server.settings.server.url), checks=CHECKS, timeout=40)
