"""An archive process that tests start and kill, and a reader of its tables that isn't ours."""

import os
from pathlib import Path
from signal import SIGKILL, SIGTERM
from typing import Any

import duckdb
import polars as pl
from duckdb_extensions import import_extension

from caraway.process.children.forking import Forked
from caraway.process.settings.settings import Settings
from tests.services.forking import FORKS
from tests.timeouts import scaled


class ArchiveProcess:
    """`python -m caraway.dataplane.archive` with the settings of a server."""

    def __init__(
        self,
        settings: Settings,
        *,
        seconds: float,
        node: str = "archive",
        topic_days: float | None = None,
        replaced_hours: int = 24,
    ) -> None:
        archive = settings.archive.model_copy(
            update={"seconds": seconds, "topic_days": topic_days, "replaced_hours": replaced_hours}
        )
        objects = settings.objects_url
        self._settings = settings.model_copy(
            update={
                "archive": archive,
                "objects": objects,
                "data_dir": settings.data_dir / node,
                "secrets": settings.secrets.model_copy(update={"key_file": settings.key_file}),
            }
        )
        self.log_file: Path = settings.data_dir / f"{node}.log"
        self._process: Forked | None = None

    def start(self) -> None:
        environment = {**os.environ, **self._settings.environment()}
        self._process = FORKS.start("caraway.dataplane.archive", environment=environment, log=self.log_file)

    def kill(self) -> None:
        assert self._process is not None
        self._process.send_signal(SIGKILL)
        self._process.wait()

    def stop(self) -> int:
        assert self._process is not None
        self._process.send_signal(SIGTERM)
        return self._process.wait(scaled(60))

    def lives(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def said(self) -> str:
        return self.log_file.read_text(errors="replace")[-6000:]


def tables(settings: Settings, dataset: str) -> list[Path]:
    """Return the folders of the tables of a dataset's topics. A table exists from the first commit in its log on."""
    commits = Path(settings.objects_url).glob(f"archive/caraway.{dataset}.*/*/_delta_log/*.json")
    return sorted({path.parent.parent for path in commits})


def served_table(settings: Settings) -> Path | None:
    """Return the folder of the table of served features, if there is one by now."""
    commits = Path(settings.objects_url).glob("archive/caraway.offline.monitoring-features/*/_delta_log/*.json")
    return next((path.parent.parent for path in commits), None)


def served_rows(settings: Settings) -> pl.DataFrame:
    """Return the rows of served features that are archived; an empty frame before the first ones."""
    found = served_table(settings)
    return pl.DataFrame() if found is None else pl.read_delta(str(found))


class Duck:
    """DuckDB with its own implementation of Delta tables."""

    def __init__(self) -> None:
        self._connection = duckdb.connect()
        import_extension("delta", con=self._connection)
        self._connection.execute("LOAD delta")

    def ask(self, query: str, table: Path) -> Any:
        """Return the one row of a query, in which {table} stands for a table."""
        return self._connection.execute(query.format(table=f"delta_scan('{table}')")).fetchone()

    def close(self) -> None:
        self._connection.close()
