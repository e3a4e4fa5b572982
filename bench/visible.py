"""The time from a commit until it is visible on every process of every server.

    python -m bench visible [--commits 50] [--servers 2] [--workers 2] [--json FILE]

A broker, a database and some servers are started in a temporary folder. Each commit adds a dataset, through one server
after the other. Its time begins when the database has committed it, and ends when every open connection has found it;
the connections to each server reach all of its processes.
"""

import argparse
import os
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx2
import psycopg
from drivers import OWNER, webhook
from reports import publish
from rich.table import Table
from services import services

from caraway.apps.cli.output import out
from caraway.apps.stack import ports
from caraway.apps.stack.programs import ServerProgram
from caraway.dtypes.types import DATETIME, INT
from caraway.graph.connectors import WebhookConnector
from caraway.graph.sources import Cdc, SourceSpec
from caraway.graph.specs import DatasetSpec, FieldSpec, Graph, IndexSpec, Metadata
from caraway.graph.wire.graphs import CommitRequest, encode_commit
from caraway.process.settings.settings import Settings
from caraway.state.listening import CHANNEL
from tests.alone import running

# Number of new connections to a server. The kernel divides them among its processes; this many very probably reach each
# of a few.
CONNECTIONS = 8
PAUSE_SECONDS = 0.002
TIMEOUT_SECONDS = 60.0
HOUR_US = 3_600_000_000


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--commits", type=int, default=50)
    parser.add_argument("--servers", type=int, default=2)
    parser.add_argument("--workers", type=int, default=2, help="processes of each server that answer queries")
    parser.add_argument("--kafka", default="", help="a broker that runs already")
    parser.add_argument("--postgres", default="", help="an empty database that is there already")
    parser.add_argument("--json", type=Path, help="where to write the figures as well")
    options = parser.parse_args()
    with serving(options.servers, options.workers, options.kafka, options.postgres) as (urls, postgres):
        seconds = [visible_after(number, urls, postgres) for number in range(options.commits)]
    milliseconds = sorted(1000 * found for found in seconds)
    report = {
        "bench": "visible",
        "commits": options.commits,
        "servers": options.servers,
        "workers": options.workers,
        "p50_ms": round(statistics.median(milliseconds), 1),
        "p90_ms": round(milliseconds[int(0.9 * (len(milliseconds) - 1))], 1),
        "max_ms": round(milliseconds[-1], 1),
        "load_average": os.getloadavg()[0],
    }
    table = Table("a commit is visible on all servers after", box=None, header_style="dim")
    table.add_row(f"p50 {report['p50_ms']} ms, p90 {report['p90_ms']} ms, max {report['max_ms']} ms")
    out.print(table)
    publish(report, options.json)
    return 0


def visible_after(number: int, urls: list[str], postgres: str) -> float:
    """Make a commit; return the seconds from then until all connections of all servers find it."""
    name = f"Visible{number}"
    with ExitStack() as stack:
        heard = stack.enter_context(psycopg.connect(postgres, autocommit=True))
        heard.execute(f"LISTEN {CHANNEL}")
        asking = [
            stack.enter_context(httpx2.Client(base_url=url, timeout=TIMEOUT_SECONDS)) for url in urls * CONNECTIONS
        ]
        for client in asking:
            client.get("/api/v1/health")
        committing = threading.Thread(target=commit, args=(urls[number % len(urls)], name))
        committing.start()
        next(heard.notifies(timeout=TIMEOUT_SECONDS))
        begun = time.monotonic()
        # A connection that has found the commit isn't asked again.
        while asking:
            asking = [client for client in asking if not finds(client, name)]
            if time.monotonic() - begun > TIMEOUT_SECONDS:
                raise SystemExit(f"commit {number} isn't visible everywhere after {TIMEOUT_SECONDS:g} s")
            time.sleep(PAUSE_SECONDS)
        found = time.monotonic() - begun
        committing.join()
        return found


def commit(url: str, name: str) -> None:
    """Add a dataset."""
    spec = DatasetSpec(
        name=name,
        version=1,
        history_us=HOUR_US,
        fields=(
            FieldSpec(name="driver", dtype=INT, key=True),
            FieldSpec(name="at", dtype=DATETIME, timestamp=True),
        ),
        index=IndexSpec(online=True, offline=True),
        sources=(
            SourceSpec(
                connector=WebhookConnector(name=webhook.name, endpoint=name.lower(), retention_us=0),
                disorder_us=HOUR_US,
                cdc=Cdc.UPSERT,
            ),
        ),
        metadata=Metadata(owner=OWNER),
    )
    content = encode_commit(CommitRequest(message=name, graph=Graph(datasets=(spec,)), incremental=True))
    headers = {"Content-Type": "application/octet-stream"}
    httpx2.post(f"{url}/api/v1/commit", content=content, headers=headers, timeout=60).raise_for_status()


def finds(client: httpx2.Client, name: str) -> bool:
    """Return whether the process at the other end of a connection knows a dataset."""
    answer = client.post(f"/api/v1/dataset/{name}/lookup", json={"keys": [{"driver": 1}], "fields": ["driver"]})
    return answer.is_success


@contextmanager
def serving(servers: int, workers: int, kafka: str, postgres: str) -> Iterator[tuple[list[str], str]]:
    """Start servers with their broker and database; yield the addresses of the servers and of the database."""
    with services("visible", kafka, postgres) as (folder, kafka, postgres), ExitStack() as stack:  # noqa: PLR1704
        urls = []
        for number in range(servers):
            port = ports.choose()
            settings = Settings.model_validate(
                {
                    "data_dir": folder / f"data{number}",
                    "kafka": {"bootstrap_servers": kafka},
                    "postgres": {"url": postgres},
                    "server": {"port": port, "workers": workers, "tokens": False},
                    "secrets": {"key_file": folder / "secret.key"},
                }
            )
            urls.append(f"http://127.0.0.1:{port}")
            program = ServerProgram(folder / f"server{number}", settings, port)
            stack.enter_context(running(program, folder / f"server{number}.log"))
        yield urls, postgres


if __name__ == "__main__":
    raise SystemExit(main())
