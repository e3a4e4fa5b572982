"""A server that speaks Snowflake's protocol over DuckDB (fakesnow), with passwords and cut answers.

    python -m tests.services.snowflake PORT FOLDER

fakesnow itself takes any password. This server refuses wrong ones as Snowflake does, and ends connections in the middle
of an answer if it is told to.
"""

import gzip
import json
import logging
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any
from urllib.parse import parse_qs

import uvicorn
from fakesnow.instance import FakeSnow
from snowflake.connector import SnowflakeConnection

from caraway.apps.stack import ports
from caraway.dataplane.warehouses.snowflake import connect
from caraway.graph.systems import SnowflakeSystem
from tests.services.module_server import ModuleServer
from tests.timeouts import deadline_in

# The package has a function of the same name.
SERVER: Any = import_module("fakesnow.server")
# fakesnow notes comments and lengths of texts in another database, which DuckDB doesn't let a transaction write
# besides. MERGE makes a temporary table, which needs neither.
_NOTES: Any = import_module("fakesnow.info_schema")
_NOTES.insert_text_lengths_sql = lambda *_: "SELECT 1"
_COMMENT = _NOTES.insert_table_comment_sql
_NOTES.insert_table_comment_sql = lambda *of: _COMMENT(*of) if of[2].upper() != "MERGE_CANDIDATES" else "SELECT 1"
USER, PASSWORD = "ADA", "of-ada"
DATABASE, SCHEMA = "HIVES", "BEES"
LOGIN = "/session/v1/login-request"
WRONG = {
    "data": {"nextAction": "RETRY_LOGIN"},
    "code": "390100",
    "message": "Incorrect username or password was specified.",
    "success": False,
}


class Gate:
    """The application in front of fakesnow's (ASGI)."""

    def __init__(self) -> None:
        self.passwords = {USER: PASSWORD}
        # How many of the next answers to statements are cut.
        self.cut = 0
        # The answers that were cut, by the identity of the request. Snowflake doesn't run a statement again for a
        # request that is repeated.
        self._cut_answers: dict[str, bytes] = {}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        path = scope["path"]
        if path.startswith("/telemetry"):
            await _answer(send, {"success": True})
            return
        if path == LOGIN:
            found = await _body(scope, receive)
            if self.passwords.get(found["data"]["LOGIN_NAME"]) != found["data"]["PASSWORD"]:
                await _answer(send, WRONG)
                return
            await SERVER.app(_plain(scope), _again(found), send)
            return

        query = parse_qs(scope["query_string"].decode())
        request = query.get("requestId", [""])[0]
        if (known := self._cut_answers.pop(request, None)) is not None:
            await _answer(send, json.loads(known))
            return

        if path.startswith("/queries"):
            found = await _body(scope, receive)
            if found.get("sqlText") == "BEGIN TRANSACTION":
                # fakesnow runs the statement, and then fails to describe its result.
                token = dict(scope["headers"])[b"authorization"].decode()[17:-1]
                if token in SERVER.sessions:
                    SERVER.sessions[token]._duck_conn.execute("BEGIN")
                    found["sqlText"] = "SELECT 'Statement executed successfully.' AS status"
            scope, receive = _plain(scope), _again(found)

        async def cutting(message: Any) -> None:
            if self.cut and path.startswith("/queries") and message["type"] == "http.response.body":
                self.cut -= 1
                self._cut_answers[request] = message["body"]
                await send({**message, "body": message["body"][:20], "more_body": True})
                raise ConnectionResetError("cut by the test")
            await send(message)

        await SERVER.app(scope, receive, cutting)

    def end_sessions(self) -> None:
        """Make the server forget all sessions, as a restart does."""
        SERVER.sessions.clear()


async def _body(scope: Any, receive: Any) -> Any:
    """Return the JSON of a request."""
    message = await receive()
    body = message["body"]
    while message.get("more_body"):
        message = await receive()
        body += message["body"]
    is_zipped = dict(scope["headers"]).get(b"content-encoding") == b"gzip"
    return json.loads((gzip.decompress(body) if is_zipped else body) or b"{}")


def _again(found: Any) -> Any:
    """Return the function that receives a request whose JSON was read."""

    async def receive() -> Any:
        return {"type": "http.request", "body": json.dumps(found).encode(), "more_body": False}

    return receive


def _plain(scope: Any) -> Any:
    """Return a request without compression."""
    return {**scope, "headers": [(name, value) for name, value in scope["headers"] if name != b"content-encoding"]}


async def _answer(send: Any, body: Any) -> None:
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": json.dumps(body).encode()})


def system_of(*, name: str = "snow", password: Any = PASSWORD, user: str = USER) -> SnowflakeSystem:
    """Return the system of a server of this module."""
    return SnowflakeSystem(
        name=name,
        account="acme",
        database=DATABASE,
        username=user,
        password=password,
        warehouse="W",
        schema=SCHEMA,
        role="READER",
    )


def session(port: int) -> SnowflakeConnection:
    """Open a session of the connector."""
    return connect(system_of(), str, f"http://127.0.0.1:{port}")


class Snowflake(ModuleServer):
    """A server in a process of its own, which can be killed, and started again on its data."""

    module = "tests.services.snowflake"

    def execute(self, *statements: str) -> list[Any]:
        """Run statements, and return the rows of the last one."""
        with session(self.port) as made, made.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            return list(cursor.fetchall())


@contextmanager
def running_in_thread() -> Iterator[tuple[int, Gate]]:
    """Run a server whose data is in memory in a thread of this process, and yield its port and its gate."""
    gate, port = Gate(), ports.choose()
    SERVER.shared_fs = FakeSnow()
    SERVER.sessions.clear()
    logging.getLogger("fakesnow.server").setLevel(logging.CRITICAL)
    server = uvicorn.Server(uvicorn.Config(gate, port=port, log_level="critical", lifespan="off"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    deadline = deadline_in(30)
    while not server.started:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    try:
        yield port, gate
    finally:
        server.should_exit = True
        thread.join()


def main() -> None:
    """Serve the databases in a folder."""
    port, folder = int(sys.argv[1]), sys.argv[2]
    SERVER.shared_fs = FakeSnow(db_path=folder)
    uvicorn.run(Gate(), port=port, log_level="error", lifespan="off")


if __name__ == "__main__":
    main()
