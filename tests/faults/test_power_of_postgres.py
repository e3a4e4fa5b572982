"""Tests that the embedded Postgres loses nothing that was committed when the power fails."""

from contextlib import closing
from pathlib import Path

import psycopg
import sqlalchemy as sa

from caraway.apps.stack import ports
from caraway.apps.stack.postgres import EmbeddedPostgres
from caraway.state.database import connect
from caraway.state.migrate import migrate
from caraway.state.model import MAIN
from caraway.state.tables import commits
from tests.alone import running
from tests.integration.state.deployment import FIRST, SECOND, Deployment
from tests.services.postgres import end_all
from tests.services.power import powered


def test_nothing_that_postgres_committed_is_lost(tmp_path: Path) -> None:
    """The power fails after commits, while another transaction is open; the platform's state is readable."""
    part = EmbeddedPostgres(tmp_path / "data" / "postgres", ports.choose())
    with powered(tmp_path / "data") as power:
        with running(part, tmp_path / "log") as pid:
            migrate(part.url)
            engine = connect(part.url)
            deployment = Deployment(engine)
            written = [deployment.commit(graph) for graph in (FIRST, SECOND) * 5]
            with closing(psycopg.connect(part.url)) as other:
                other.execute("CREATE TABLE never_committed AS SELECT generate_series(1, 5000)")
                end_all(pid)
            engine.dispose()
        power.cut()
        with running(part, tmp_path / "log"):
            migrate(part.url)
            engine = connect(part.url)
            assert Deployment(engine).reader.head_id(MAIN) == written[-1]
            with engine.connect() as connection:
                assert set(connection.execute(sa.select(commits.c.id)).scalars()) == set(written)
                assert connection.execute(sa.text("SELECT to_regclass('never_committed')")).scalar() is None
            engine.dispose()
