"""Queries and log requests with TLS, OpenID Connect and all checks, beside the same without, in turns.

    python -m bench secured [--seconds 1] [--rounds 20] [--json FILE]

Two servers of one deployment run at the same time, on one Kafka and one Postgres. "Plain" speaks HTTP, lets everyone do
everything, and reaches Kafka in clear. "Secured" speaks HTTPS, takes JWTs of an identity provider whose group has a
role that leaves out entities with some tag, and reaches Kafka by SASL_SSL and SCRAM. Each round asks both, one after
the other, over one kept connection; the first one alternates.

Reported are the time of a request as its client sees it (the median of a turn), and the processor time of the server
and its children for a request. Both servers index all events, so this is a part of each in log requests. The ratio of
the least medians of all turns is that to which other programs of the machine add the least; the median of the ratios of
all rounds stands beside it.
"""

import argparse
import itertools
import os
import ssl
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import orjson
import psutil
from drivers import ENTITIES, TEN
from endurance import ENDPOINT, KEY, WEBHOOK, Writer, commit
from load import one_by_one, post
from query import MANY, bodies
from quiet import how_quiet
from reports import publish
from rich.table import Table
from services import services

from caraway.apps.cli.output import out
from caraway.apps.stack import ports
from caraway.apps.stack.programs import ServerProgram
from caraway.process.settings.settings import Settings
from caraway.state.access import Access
from caraway.state.database import connect
from caraway.state.permissions import Grant, Mode
from tests.alone import running
from tests.services.certificates import write_certificates
from tests.services.oidc import AUDIENCE, running_provider
from tests.services.secured_kafka import PASSWORD, USER, running_secured_kafka

TARGET = 1.1
PLAIN, SECURED = "plain", "secured"
GROUP, ROLE = "features", "bench"
# The bodies of log requests of a turn, made before it; more than a turn sends.
LOGS = 4_000
WARM_UP_SECONDS = 2.0
DAY_SECONDS = 86_400


@dataclass
class Way:
    """A server, how it is asked, and what was measured of a case.

    Attributes:
        url: Its address.
        pid: Its process.
        token: The token that its requests show.
        tls: The authority by which it is verified.
        medians_ms: The median of each turn.
        processor_us: The processor time of a request of each turn.
    """

    url: str
    pid: int
    token: str | None = None
    tls: ssl.SSLContext | None = None
    medians_ms: list[float] = field(default_factory=list)
    processor_us: list[float] = field(default_factory=list)

    def turn(self, path: str, made: Sequence[bytes], seconds: float) -> None:
        """Send requests for some seconds, and note what they took."""
        requests = [post(f"{self.url}{path}", body, token=self.token) for body in made]
        before = processor_seconds(self.pid)
        done = one_by_one(self.url, requests, seconds, self.tls)
        self.processor_us.append(1e6 * (processor_seconds(self.pid) - before) / len(done.latencies))
        self.medians_ms.append(done.percentile(50))


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=1.0, help="seconds of each turn")
    parser.add_argument("--rounds", type=int, default=20, help="turns of each way, for each case")
    parser.add_argument("--json", type=Path, help="where to write the figures as well")
    options = parser.parse_args()
    quiet = how_quiet()
    outputs, numbers = [f"Driver.{name}" for name in TEN], itertools.count()
    cases: dict[str, tuple[str, Callable[[], Sequence[bytes]]]] = {
        "query, 1 x 10": ("/api/v1/query", lambda: bodies(KEY, outputs, 1)),
        "query, 100 x 10": ("/api/v1/query", lambda: bodies(KEY, outputs, MANY)),
        "log, 1 event": ("/api/v1/log", lambda: logs(numbers, 1)),
        "log, 100 events": ("/api/v1/log", lambda: logs(numbers, MANY)),
    }
    with both() as ways:
        figures = {name: measured(ways, *case, options.seconds, options.rounds) for name, case in cases.items()}
    show(figures)
    out.print(str(quiet))
    report = {
        "bench": "secured",
        "seconds": options.seconds,
        "rounds": options.rounds,
        "held_up": quiet.part,
        "figures": figures,
        "load_average": os.getloadavg()[0],
    }
    publish(report, options.json)
    return 0


def measured(
    ways: dict[str, Way], path: str, made: Callable[[], Sequence[bytes]], seconds: float, rounds: int
) -> dict[str, float]:
    """Return the figures of a case."""
    for way in ways.values():
        way.turn(path, made(), min(WARM_UP_SECONDS, seconds))
        way.medians_ms.clear()
        way.processor_us.clear()
    order = list(ways.values())
    for _ in range(rounds):
        for way in order:
            way.turn(path, made(), seconds)
        order.reverse()
    plain, secured = ways[PLAIN], ways[SECURED]
    found: dict[str, float] = {}
    for name, of in (("ms", lambda way: way.medians_ms), ("processor_us", lambda way: way.processor_us)):
        pairs = [theirs / mine for mine, theirs in zip(of(plain), of(secured), strict=True)]
        found |= {
            f"{PLAIN}_{name}": round(min(of(plain)), 4),
            f"{SECURED}_{name}": round(min(of(secured)), 4),
            f"{name}_ratio": round(min(of(secured)) / min(of(plain)), 4),
            f"{name}_ratio_of_pairs": round(statistics.median(pairs), 4),
        }
    return found


def logs(numbers: Iterator[int], together: int) -> list[bytes]:
    """Return the bodies of log requests with new rows, so many in each."""
    begun, count = time.time() - DAY_SECONDS, max(1, LOGS // together)
    return [
        orjson.dumps(
            {"webhook": WEBHOOK, "endpoint": ENDPOINT, "data": [row(next(numbers), begun) for _ in range(together)]}
        )
        for _ in range(count)
    ]


def row(number: int, begun: float) -> dict[str, Any]:
    """Return a row of a driver."""
    values = {name: number + place / 8 for place, name in enumerate(TEN)}
    return {"driver": number % ENTITIES, "at": begun + number / 1000, **values}


def processor_seconds(pid: int) -> float:
    """Return the processor time of a process and its children."""
    process = psutil.Process(pid)
    times = [each.cpu_times() for each in (process, *process.children(recursive=True))]
    return sum(each.user + each.system for each in times)


@contextmanager
def both() -> Iterator[dict[str, Way]]:
    """Start both servers with what they need; yield them once they serve the same rows."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="secured-")))
        kafka = stack.enter_context(running_secured_kafka(folder))
        _, _, postgres = stack.enter_context(services("secured", kafka.open, ""))
        provider = stack.enter_context(running_provider())
        ca_file, own = folder / "server-ca.pem", folder / "server.pem"
        write_certificates(ca_file, own)
        engine = connect(postgres)
        stack.callback(engine.dispose)

        def serve(name: str, server: dict[str, Any], **more: Any) -> tuple[str, int]:
            port = ports.choose()
            settings = Settings.model_validate(
                {
                    "data_dir": folder / name,
                    "postgres": {"url": postgres},
                    "secrets": {"key_file": folder / "secret.key"},
                    "server": {"port": port, **server},
                    **more,
                }
            )
            program = ServerProgram(folder / f"{name}-server", settings, port)
            pid = stack.enter_context(running(program, folder / f"{name}.log"))
            return str(settings.server.url), pid

        plain = Way(*serve(PLAIN, {"tokens": False}, kafka={"bootstrap_servers": kafka.open}))
        may = frozenset({Mode.READ_DATA, Mode.WRITE_DATA, Mode.READ_DEFINITION})
        Access(engine, by="bench").define_role(ROLE, [Grant(modes=may, without=frozenset({"personal"}))])
        tls = {
            "bootstrap_servers": kafka.addresses["SASL_SSL"],
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": "SCRAM-SHA-512",
            "user": USER,
            "password": PASSWORD,
            "ca_file": kafka.ca_file,
        }
        secured = Way(
            *serve(
                SECURED,
                {"certificate_file": own, "key_file": own},
                kafka=tls,
                oidc={"issuer": provider.issuer, "audience": AUDIENCE, "roles": {GROUP: [ROLE]}},
            ),
            token=provider.token(groups=[GROUP], exp=int(time.time()) + DAY_SECONDS),
            tls=ssl.create_default_context(cafile=ca_file),
        )
        commit(plain.url)
        Writer(plain.url, 1.0, 1).write_all()
        yield {PLAIN: plain, SECURED: secured}


def show(figures: dict[str, dict[str, float]]) -> None:
    """Print the figures."""
    table = Table("", "plain", "secured", "ratio", "median of pairs", "processor time", "", "ratio", "median of pairs")
    for name, one in figures.items():
        cells = [
            cell
            for kind, unit in (("ms", "ms"), ("processor_us", "us"))
            for cell in (
                f"{one[f'{PLAIN}_{kind}']:.3g} {unit}",
                f"{one[f'{SECURED}_{kind}']:.3g} {unit}",
                f"{one[f'{kind}_ratio']:.3f}",
                f"{one[f'{kind}_ratio_of_pairs']:.3f}",
            )
        ]
        table.add_row(name, *cells)
    out.print(table)
    out.print(f"At most {TARGET} of the time without is wanted.")


if __name__ == "__main__":
    sys.exit(main())
