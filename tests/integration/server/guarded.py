"""A server with tokens, and callers of it, each with rights of its own."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path

import httpx2
import sqlalchemy as sa

from caraway.graph.specs import Graph
from caraway.process.settings.connectors import SourcesSettings
from caraway.state.access import Access, digest_of
from caraway.state.database import connect
from caraway.state.permissions import Grant
from tests.integration.server.server_process import ServerProcess, eventually
from tests.tls import TLS


class Guarded:
    """A server with tokens; its `http` is that of an administrator."""

    def __init__(self, server: ServerProcess, engine: sa.Engine) -> None:
        self.server, self.engine = server, engine
        self.access = Access(engine, by="test")
        self._made: list[httpx2.Client] = []
        self.admin = self.administrator("root@example.com")
        server.http.headers["Authorization"] = f"Bearer {self.admin}"

    def administrator(self, account: str) -> str:
        """Return a token for everything."""
        return self._known(self.access.create_token(account, roles_given=["admin"]))[1]

    def token(self, name: str, *grants: Grant) -> tuple[str, str]:
        """Return the id and the text of a token with these grants."""
        self.access.define_role(name, grants)
        return self._known(self.access.create_token(name, roles_given=[name], kind="service"))

    def session(self, token: str) -> str:
        """Return the id of a session of a browser that has signed in with a token."""
        return Access(self.engine, by="test").begin_session(timedelta(hours=1), token_digest=digest_of(token))

    def user(self, name: str, *grants: Grant) -> httpx2.Client:
        """Return a client whose account has these grants."""
        _, token = self.token(name, *grants)
        url, headers = str(self.server.settings.server.url), {"Authorization": f"Bearer {token}"}
        self._made.append(httpx2.Client(base_url=url, headers=headers, timeout=self.server.http.timeout, verify=TLS))
        return self._made[-1]

    def close(self) -> None:
        for client in self._made:
            client.close()
        self.engine.dispose()

    def _known(self, made: tuple[str, str]) -> tuple[str, str]:
        """Return a token after the server has learned of it."""
        headers = {"Authorization": f"Bearer {made[1]}"}
        eventually(
            lambda: httpx2.get(f"{self.server.http.base_url}metrics", headers=headers, verify=TLS).status_code == 200,
            self.server.said,
        )
        return made


@contextmanager
def guarded_server(
    folder: Path,
    *,
    kafka: str,
    postgres: str,
    graph: Graph,
    cold: bool = False,
    sources: SourcesSettings | None = None,
) -> Iterator[Guarded]:
    """Start a server with tokens, by its command if `cold`, and commit a graph."""
    process = ServerProcess(folder, kafka=kafka, postgres=postgres, tokens=True, cold=cold, sources=sources)
    process.start()
    try:
        with closing(Guarded(process, connect(postgres))) as guarded:
            process.commit(graph)
            yield guarded
    finally:
        code = process.stop()
    assert code == 0, process.said()
    assert process.stalls() == []
