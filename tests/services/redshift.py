"""As much of AWS as gives a role access to a cluster of Redshift, for which Postgres stands in.

A role that is assumed gets a user of Postgres with a new password, which Postgres then checks. moto knows only the
older call, which takes the name of a user.
"""

import secrets
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

import psycopg
from psycopg import sql

ROLE = "arn:aws:iam::123456789012:role/reader"


class Aws:
    """As much of AWS's STS and Redshift as gives a role access: it makes a user of Postgres with a password."""

    def __init__(self, url: str) -> None:
        self.calls: list[tuple[str, str, str]] = []
        self._url = url
        handler = type("Handler", (_Handler,), {"aws": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.address = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the server."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def answer(self, request: dict[str, str], key: str) -> tuple[int, str]:
        """Return the status and the XML of an answer."""
        action = request["Action"]
        self.calls.append((action, request.get("ClusterIdentifier", request.get("RoleArn", "")), key))
        if action == "AssumeRole" and request["RoleArn"] == ROLE:
            result = (
                "<Credentials><AccessKeyId>of-role</AccessKeyId><SecretAccessKey>s</SecretAccessKey>"
                "<SessionToken>t</SessionToken><Expiration>2099-01-01T00:00:00Z</Expiration></Credentials>"
            )
        elif action == "GetClusterCredentialsWithIAM" and key == "of-role":
            user, password = "IAMR:reader", secrets.token_hex(16)
            with psycopg.connect(self._url, autocommit=True) as connection:
                there = connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [user]).fetchone()
                verb = sql.SQL("ALTER" if there else "CREATE")
                who = sql.Identifier(user)
                connection.execute(sql.SQL("{} ROLE {} LOGIN PASSWORD {}").format(verb, who, sql.Literal(password)))
                connection.execute(sql.SQL("GRANT SELECT ON ALL TABLES IN SCHEMA public TO {}").format(who))
            result = f"<DbUser>{user}</DbUser><DbPassword>{password}</DbPassword>"
        else:
            return 403, (
                "<ErrorResponse><Error><Type>Sender</Type><Code>AccessDenied</Code>"
                f"<Message>User is not authorized to perform {action}</Message></Error></ErrorResponse>"
            )
        return 200, f"<{action}Response><{action}Result>{result}</{action}Result></{action}Response>"


class _Handler(BaseHTTPRequestHandler):
    aws: Aws

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        request = {name: values[0] for name, values in parse_qs(body).items()}
        key = self.headers["Authorization"].partition("Credential=")[2].partition("/")[0]
        status, text = self.aws.answer(request, key)
        data = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/xml")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args: Any) -> None:
        del args
