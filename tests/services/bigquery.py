"""A server that speaks as much of BigQuery's REST protocol as Google's library needs to read tables, over DuckDB.

    python -m tests.services.bigquery PORT FOLDER

It isn't BigQuery: sqlglot translates the statements into DuckDB's SQL, and types, pages, tokens and errors are made
here as Google's documentation describes them. The library is real: it signs in with a private key, repeats requests,
follows pages and reads values. A server can be told to cut answers, to let pages expire and to refuse keys.
"""

import base64
import itertools
import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import duckdb
import sqlglot
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from google.auth import jwt

from caraway.apps.stack import ports
from caraway.graph.systems import BigQuerySystem
from tests.services.module_server import ModuleServer

PROJECT, DATASET = "my-project", "bees"
MOST_RESULTS = 10
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TYPES = {
    "BIGINT": "INTEGER",
    "INTEGER": "INTEGER",
    "HUGEINT": "INTEGER",
    "DOUBLE": "FLOAT",
    "BOOLEAN": "BOOLEAN",
    "VARCHAR": "STRING",
    "JSON": "JSON",
    "BLOB": "BYTES",
    "DATE": "DATE",
    "TIME": "TIME",
    "TIMESTAMP": "DATETIME",
    "TIMESTAMP WITH TIME ZONE": "TIMESTAMP",
    "INTERVAL": "INTERVAL",
}


def field_of(name: str, kind: str) -> dict[str, Any]:
    """Return the description of a column from its type in DuckDB."""
    if kind.endswith("[]"):
        return {**field_of(name, kind[:-2]), "mode": "REPEATED"}
    if kind.startswith("STRUCT"):
        # The reader doesn't need the members: values come as JSON.
        return {"name": name, "type": "RECORD", "mode": "NULLABLE", "fields": [{"name": "a", "type": "INTEGER"}]}
    if kind.startswith("DECIMAL"):
        return {"name": name, "type": "NUMERIC" if kind.endswith(",9)") else "BIGNUMERIC", "mode": "NULLABLE"}
    return {"name": name, "type": _TYPES[kind], "mode": "NULLABLE"}


def wire(value: Any) -> Any:
    """Return a value as BigQuery writes it."""
    match value:
        case None:
            return None
        case bool():
            return "true" if value else "false"
        case datetime() if value.tzinfo is not None:
            return str((value - EPOCH) // timedelta(microseconds=1))
        case datetime() | date():
            return value.isoformat()
        case bytes():
            return base64.b64encode(value).decode()
        case Decimal():
            return f"{value:f}"
        case list():
            return [{"v": wire(each)} for each in value]
        case _:
            return str(value)


def bound(parameter: Any) -> Any:
    """Return the value of a parameter of a statement."""
    text = parameter["parameterValue"]["value"]
    match parameter["parameterType"]["type"]:
        case "INT64":
            return int(text)
        case "NUMERIC" | "BIGNUMERIC":
            return Decimal(text)
        case "TIMESTAMP" | "DATETIME":
            return datetime.fromisoformat(text)
        case "DATE":
            return date.fromisoformat(text)
        case "STRING":
            return text
        case other:
            raise AssertionError(other)


class Refused(Exception):  # noqa: N818 (it is an answer)
    """An error of the protocol."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status, self.reason = status, reason

    def body(self) -> Any:
        errors = [{"message": str(self), "domain": "global", "reason": self.reason}]
        return {"error": {"code": self.status, "message": str(self), "errors": errors}}


class Service:
    """Datasets, keys and the results of statements."""

    def __init__(self, folder: Path | None = None) -> None:
        """Open the data and the keys in a folder, which no other process may have open; None: they are in memory."""
        self._connection = duckdb.connect()
        self._connection.execute("SET TimeZone = 'UTC'")
        at = ":memory:" if folder is None else str(folder / "data.duckdb")
        self._connection.execute(f"ATTACH '{at}' AS \"{PROJECT}\"")
        self._connection.execute(f'CREATE SCHEMA IF NOT EXISTS "{PROJECT}".{DATASET}')
        self._lock = threading.Lock()
        self.port = 0
        # The public keys by the identity of the key, and the keys to which access was given by its token.
        self.keys: dict[str, bytes] = {}
        self._kept_keys = None if folder is None else folder / "keys.json"
        if self._kept_keys is not None and self._kept_keys.exists():
            self.keys = {name: key.encode() for name, key in json.loads(self._kept_keys.read_text()).items()}
        self._access: dict[str, str] = {}
        # Results expire when there are newer ones.
        self._results: dict[str, tuple[list[Any], list[Any]]] = {}
        self._jobs = itertools.count()
        # The statements that came, how many of the next answers with rows are cut, and whether pages have expired.
        self.statements: list[str] = []
        self.cut = 0
        self.is_expired = False

    def execute(self, statement: str, *values: Any) -> list[Any]:
        """Run a statement of DuckDB in the dataset, with values at its question marks."""
        with self._lock, self._connection.cursor() as cursor:
            cursor.execute("SET TimeZone = 'UTC'")
            cursor.execute(f'USE "{PROJECT}".{DATASET}')
            return cursor.execute(statement, values).fetchall()

    def close(self) -> None:
        """Close the data."""
        self._connection.close()

    def new_key(self) -> str:
        """Return a service account's key, as the JSON of Google's console, which the server knows from now on."""
        made = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        identity = f"key-{len(self.keys) + 1}"
        self.keys[identity] = made.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        if self._kept_keys is not None:
            self._kept_keys.write_text(json.dumps({name: key.decode() for name, key in self.keys.items()}))
        private = made.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return json.dumps(
            {
                "type": "service_account",
                "project_id": PROJECT,
                "private_key_id": identity,
                "private_key": private.decode(),
                "client_email": "reader@my-project.iam.gserviceaccount.com",
                "token_uri": f"http://127.0.0.1:{self.port}/token",
            }
        )

    def delete_key(self, identity: str) -> None:
        """Forget a key, and the access that was given for it."""
        del self.keys[identity]
        self._access = {token: key for token, key in self._access.items() if key != identity}

    def token(self, body: bytes) -> Any:
        """Return access for an assertion that is signed by a known key."""
        assertion = parse_qs(body.decode())["assertion"][0]
        identity = jwt.decode_header(assertion)["kid"]
        try:
            jwt.decode(assertion, certs=self.keys[identity], audience="https://oauth2.googleapis.com/token")
        except (KeyError, ValueError):
            raise Refused(400, "invalid_grant", "Invalid JWT Signature.") from None
        token = f"token-{identity}-{len(self._access)}"
        self._access[token] = identity
        return {"access_token": token, "expires_in": 3600, "token_type": "Bearer"}

    def answer(self, method: str, path: str, headers: Any, body: bytes) -> Any:
        """Return the JSON of the answer to a request."""
        of = urlsplit(path)
        if of.path == "/token":
            return self.token(body)
        if headers.get("Authorization", "").removeprefix("Bearer ") not in self._access:
            raise Refused(401, "authError", "Request had invalid authentication credentials.")
        parts, query = [unquote(part) for part in of.path.split("/")[3:]], parse_qs(of.query)
        match method, parts:
            case "POST", ["projects", _, "queries"]:
                return self._query(json.loads(body))
            case "GET", ["projects", _, "queries", job]:
                return self._page(job, int(query["maxResults"][0]), query.get("pageToken", ["0"])[0])
            case "GET", ["projects", _, "jobs", job]:
                return self._job(job)
            case "GET", ["projects", project, "datasets", dataset, "tables"]:
                self._check(project, dataset)
                names = self.execute("SELECT table_name FROM duckdb_tables() WHERE schema_name = ? ORDER BY 1", dataset)
                return {"tables": [{"tableReference": _table(project, dataset, name)} for (name,) in names]}
            case "GET", ["projects", project, "datasets", dataset, "tables", table]:
                return self._described(project, dataset, table)
        raise Refused(404, "notFound", f"Not found: {path}")

    def _check(self, project: str, dataset: str) -> None:
        found = self.execute(
            "SELECT 1 FROM duckdb_schemas() WHERE database_name = ? AND schema_name = ?", project, dataset
        )
        if not found:
            raise Refused(404, "notFound", f"Not found: Dataset {project}:{dataset}")

    def _described(self, project: str, dataset: str, table: str) -> Any:
        self._check(project, dataset)
        columns = self.execute(
            "SELECT column_name, data_type FROM duckdb_columns() "
            "WHERE schema_name = ? AND table_name = ? ORDER BY column_index",
            dataset,
            table,
        )
        if not columns:
            raise Refused(404, "notFound", f"Not found: Table {project}:{dataset}.{table}")
        ((rows,),) = self.execute(f'SELECT COUNT(*) FROM "{project}"."{dataset}"."{table}"')  # noqa: S608 (names that are there)
        fields = [field_of(name, kind) for name, kind in columns]
        return {
            "tableReference": _table(project, dataset, table),
            "schema": {"fields": fields},
            "numRows": str(rows),
            "type": "TABLE",
        }

    def _query(self, request: Any) -> Any:
        text = request["query"]
        self.statements.append(text)
        assert request["useLegacySql"] is False
        assert request["formatOptions"] == {"useInt64Timestamp": True}
        (statement,) = sqlglot.transpile(text, read="bigquery", write="duckdb")
        values = {of["name"]: bound(of) for of in request.get("queryParameters", [])}
        with self._lock, self._connection.cursor() as cursor:
            cursor.execute("SET TimeZone = 'UTC'")
            try:
                found = cursor.execute(statement, values) if values else cursor.execute(statement)
                fields = [field_of(f"f{number}", str(kind[1])) for number, kind in enumerate(found.description)]
                rows = found.fetchall()
            except duckdb.CatalogException as error:
                raise Refused(404, "notFound", str(error)) from None
            except duckdb.Error as error:
                raise Refused(400, "invalidQuery", str(error)) from None
        job = f"job-{next(self._jobs)}"
        self._results[job] = (fields, rows)
        while len(self._results) > MOST_RESULTS:
            self._results.pop(next(iter(self._results)))
        return self._page(job, request["maxResults"], "0")

    def _page(self, job: str, size: int, token: str) -> Any:
        if self.is_expired and token != "0":
            raise Refused(400, "invalid", "Invalid page token.")
        if job not in self._results:
            raise Refused(404, "notFound", f"Not found: Job {PROJECT}:{job}")
        fields, rows = self._results[job]
        begin = int(token)
        page = rows[begin : begin + size]
        return {
            "kind": "bigquery#queryResponse",
            "schema": {"fields": fields},
            "jobReference": _job(job),
            "jobComplete": True,
            "totalRows": str(len(rows)),
            "rows": [{"f": [{"v": wire(value)} for value in row]} for row in page],
            **({"pageToken": str(begin + size)} if begin + size < len(rows) else {}),
        }

    def _job(self, job: str) -> Any:
        if job not in self._results:
            raise Refused(404, "notFound", f"Not found: Job {PROJECT}:{job}")
        return {
            "jobReference": _job(job),
            "configuration": {"jobType": "QUERY", "query": {"query": ""}},
            "status": {"state": "DONE"},
            "statistics": {"query": {"statementType": "SELECT"}},
        }


def _table(project: str, dataset: str, table: str) -> dict[str, str]:
    return {"projectId": project, "datasetId": dataset, "tableId": table}


def _job(job: str) -> dict[str, str]:
    return {"projectId": PROJECT, "jobId": job, "location": "EU"}


def server_of(service: Service, port: int) -> ThreadingHTTPServer:
    """Return a server on a port, which doesn't run yet."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._answer("GET")

        def do_POST(self) -> None:
            self._answer("POST")

        def _answer(self, method: str) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            try:
                status, found = 200, service.answer(method, self.path, self.headers, body)
            except Refused as error:
                status, found = error.status, error.body()
                if error.reason == "invalid_grant":
                    found = {"error": error.reason, "error_description": str(error)}
            data = json.dumps(found).encode()
            is_cut = service.cut > 0 and "rows" in found
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if is_cut:
                service.cut -= 1
                self.wfile.write(data[: len(data) // 2])
                self.close_connection = True
                return
            self.wfile.write(data)

        def log_message(self, *args: Any) -> None:
            del args

    service.port = port
    return ThreadingHTTPServer(("127.0.0.1", port), Handler)


def system_of(key: Any, *, name: str = "bq") -> BigQuerySystem:
    """Return the system of a server of this module."""
    return BigQuerySystem(name=name, project_id=PROJECT, dataset_id=DATASET, service_account_key=key)


@contextmanager
def running_in_thread() -> Iterator[Service]:
    """Run a server whose data is in memory in a thread of this process."""
    service = Service()
    server = server_of(service, ports.choose())
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield service
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class BigQuery(ModuleServer):
    """A server in a process of its own, which can be killed, and started again on its data."""

    module = "tests.services.bigquery"

    def __init__(self, folder: Path) -> None:
        """Prepare a server without tables, and a key."""
        super().__init__(folder)
        with self.opened() as service:
            self.key = service.new_key()

    @contextmanager
    def opened(self) -> Iterator[Service]:
        """Open the data while the server isn't running."""
        service = Service(self.folder)
        service.port = self.port
        try:
            yield service
        finally:
            service.close()


def main() -> None:
    """Serve the data in a folder."""
    port, folder = int(sys.argv[1]), Path(sys.argv[2])
    server_of(Service(folder), port).serve_forever(0.02)


if __name__ == "__main__":
    main()
