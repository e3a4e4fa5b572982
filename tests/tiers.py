"""Two tiers: `just test` runs what guards most, `just full` runs everything in pieces (docs/inside/ci.md).

A test is in the second tier if it has the mark `full`, which must say why it isn't run each time:
`@pytest.mark.full(reason="two engines, killed and started again, for two minutes")`; or if all tests of its file are.
"""

import os
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import NoReturn

import pytest

from tests.effort import PROFILE

MARK = "full"
TESTS = Path(__file__).parent
#: Files and folders of which all tests are in the second tier, and the tests of `just test` that check the same, or
#: that none does.
LONG = {
    "integration/archive/test_kills.py": "kills; test_surface.py archives the same rows without",
    "integration/archive/test_trimmed_deployment.py": "a deployment of its own; test_short_topics.py trims topics",
    "integration/bench": "figures for their readers; `just bench` runs them",
    "integration/console": "a browser; tests/unit/apps/server/console checks all pages",
    "integration/editors": "mypy and pyright over a project; `just check` runs mypy over the same definitions",
    "integration/engine/test_backfill.py": "an engine that is killed; e2e/test_known.py reads archives",
    "integration/engine/test_slots.py": "an engine with many jobs; unit/dataplane/streams/engine computes the slots",
    "integration/installed": "wheels in new environments; tests/unit/test_build.py builds one",
    "integration/objects": "a stand-in of S3; tests/unit/dataplane/objects checks folders",
    "integration/offline/test_bucket.py": "a stand-in of S3; tests/unit/offline reads files of folders",
    "integration/offline/test_spark.py": "reads of the past on Spark; test_queries.py makes them in a process",
    "integration/server/test_backpressure.py": "an index that is stopped for long; unit/apps/server has the bounds",
    "integration/server/test_capture.py": "two databases and kills; sources/test_capture_*.py reads their logs",
    "integration/server/test_emitting.py": "servers that take over; index/test_rows.py has their emission",
    "integration/server/test_feast_client.py": "an environment with Feast; tests/unit/apps/server has its endpoints",
    "integration/server/test_file_sources.py": "stand-ins and kills; unit/dataplane/sources reads all kinds of files",
    "integration/server/test_fuzz.py": "minutes of requests; tests/unit/apps/server refuses each kind of bad ones",
    "integration/server/test_generated_client.py": "a generated client; tests/unit/apps/server has the same document",
    "integration/server/test_iceberg.py": "kills; tests/unit/dataplane/ingest reads tables of Iceberg",
    "integration/server/test_init_project.py": "a project with a server; tests/docs checks its commands",
    "integration/server/test_intake_process.py": "kills of an intake process; test_repeats.py kills a server",
    "integration/server/test_lake_kills.py": "kills; tests/unit/dataplane/sources reads tables of both formats",
    "integration/server/test_openlineage.py": "a receiver and jobs; unit/offline/monitoring/openlineage has its events",
    "integration/server/test_outages.py": "stops of parts; topics/test_topics.py and unit/state know outages",
    "integration/server/test_partitions.py": "several servers with a divided index; unit/dataplane/index has its laws",
    "integration/server/test_secured_kafka.py": "ways to sign in; topics/test_secured.py has TLS and passwords",
    "integration/server/test_shared_sinks.py": "kills; sinks/test_postgres_sink.py has the guarantees",
    "integration/server/test_sinks.py": "kills; sinks/test_postgres_sink.py has the guarantees",
    "integration/server/test_snapshots.py": "lost and damaged indexes; tests/unit/dataplane/index has snapshots",
    "integration/server/test_snowflake.py": "a stand-in and kills; no test of `just test` reads or writes Snowflake",
    "integration/server/test_source_formats.py": "registries; unit/dataplane/sources/decoding decodes each format",
    "integration/server/test_source_kills.py": "a million rows and kills; tables/test_tables.py reads databases",
    "integration/server/test_sources.py": "kills and a source that is away; unit/dataplane/sources has the worker",
    "integration/server/test_table_sinks.py": "kills; sinks/test_postgres_sink.py has the guarantees",
    "integration/server/test_webhook_kills.py": "kills; test_repeats.py sends requests again",
    "integration/server/test_workers.py": "servers of several processes; unit/apps/server has the division of work",
    "integration/sinks/test_mutants.py": "copies of writers with a mistake each",
    "integration/sinks/test_snowflake_sink.py": "a stand-in; test_postgres_sink.py has the guarantees",
    "integration/skew/test_process.py": "kills; test_watch.py runs the same watch",
    "integration/sources/test_hudi.py": "an environment with Hudi; tests/unit/dataplane/sources reads recorded tables",
    "integration/sources/test_kinesis.py": "a stand-in; no test of `just test` reads Kinesis",
    "integration/sources/test_mongo.py": "a stand-in; no test of `just test` reads MongoDB",
    "integration/sources/test_pubsub.py": "a stand-in; no test of `just test` reads PubSub",
    "integration/sources/test_stores.py": "a stand-in of each store; unit/dataplane/sources reads files",
    "integration/spark/test_files.py": "programs of Java that are compiled for it; e2e/test_flights.py has checkpoints",
    "integration/spark/test_markers.py": "jobs with many markers; parity compares what they emit",
    "integration/spark/test_restarts.py": "jobs that are killed; e2e/test_known.py starts them with a backlog",
    "integration/stack/test_class_archives.py": "JVMs that only write archives, without which all works",
    "integration/stack/test_commands.py": "a stack of its own; tests/e2e runs one",
    "integration/tables/test_bigquery.py": "a stand-in; test_tables.py reads real databases",
    "integration/tables/test_snowflake.py": "a stand-in; test_tables.py reads real databases",
    "e2e/test_kill.py": "kills; test_flights.py checks the same values",
    "faults": "damage to services that each test starts for itself",
}


def mark_long(items: Iterable[pytest.Item]) -> None:
    """Mark the tests of files that are in the second tier as a whole."""
    for item in items:
        for reason in _reasons(item.path):
            item.add_marker(pytest.mark.full(reason=reason))


@cache
def _reasons(path: Path) -> Sequence[str]:
    return [reason for place, reason in LONG.items() if path.is_relative_to(TESTS / place)]


def check_reasons(items: Iterable[pytest.Item]) -> None:
    """Check that each test of the second tier says why it is there.

    Raises:
        pytest.UsageError: A mark has no reason, or something else beside it.
    """
    for item in items:
        for mark in item.iter_markers(MARK):
            reason = mark.kwargs.get("reason")
            if mark.args or set(mark.kwargs) != {"reason"} or not isinstance(reason, str) or not reason.strip():
                raise pytest.UsageError(f'{item.nodeid}: the mark must read `pytest.mark.{MARK}(reason="...")`')


def missing(text: str) -> NoReturn:
    """Skip a test for which the machine lacks something; root in `just full` fails.

    There all can be had, and a piece whose tests were skipped would be noted as passed.
    """
    if PROFILE == "full" and os.geteuid() == 0:
        pytest.fail(text)
    pytest.skip(text)


def selected(request: pytest.FixtureRequest, argument: str) -> list[object]:
    """Return the values of a parameter in the tests that use the requesting fixture and that this session runs.

    Each value is returned once. Tests of the same module that don't use the fixture don't count.

    A fixture that starts something for each case starts it only for cases that are tested.
    """
    values: list[object] = []
    for item in request.session.items:
        if not isinstance(item, pytest.Function) or item.path != request.path:
            continue
        if hasattr(item, "callspec") and request.fixturename in item.fixturenames:
            value = item.callspec.params.get(argument)
            if value is not None and value not in values:
                values.append(value)
    return values
