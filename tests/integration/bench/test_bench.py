"""Tests that each benchmark runs to its end with tiny sizes, and that some of them return the figures they should."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench.__main__ import PROGRAMS as LISTED
from tests.timeouts import scaled

BENCH = Path(__file__).parents[3] / "bench"
TIMEOUT_S = 240
# Some benchmarks start a whole stack, and pause for half a minute to let it settle.
SLOW_TIMEOUT_S = 500
PROGRAMS = sorted(path.stem for path in BENCH.glob("*.py") if path.stem != "__main__")


# Benchmarks that start within some seconds, and need neither services nor a JVM.
QUICK = {
    "histories": "--rows 10000 --asked 100 --keys 10 --runs 1",
    "index": "--aggregate-inputs 100 --events 10",
}
# Benchmarks that start a whole stack, Spark, databases or stand-ins of them, or several servers one after the other.
SLOW = {
    "freshness": "--rate 20 --seconds 2 --warm-up 2",
    "idle": "--jobs 2 --seconds 2 --events 2",
    "ingest": "--case windows --events 2000 --warm-up 2000 --senders 1",
    "loads": "--rows 2000",
    "offline": "--months 1 --compared 100",
    "operators": "--only union --rows 2000 --keys 10 --mode micro-batch --rounds 0",
    "pauses": "--only join --jobs 1 --rate 20 --interval 5 --seconds 12",
    "remote_reads": "",
    "secured": "--seconds 0.2 --rounds 1",
    "single_events": "--rate 20 --seconds 2 --warm-up 2 --rounds 1",
    "sources": "--rows 100000",
    "sources_binlog": "--rows 500",
    "sources_capture": "--rows 500",
    "sources_files": "--rows 1000",
    "sources_rewrites": "--rows 2000 --rounds 1",
    "sources_streams": "--rows 200",
    "sources_tables": "--rows 500",
    "spark_history": "--events 2000 4000 --asked 100 --keys 10",
    "tracing": "--queries 20 --rounds 1",
    "visible": "--commits 2 --servers 1 --workers 1",
}


def run(program: str, *options: str, timeout_s: float = TIMEOUT_S) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "bench", program, *options],
        cwd=BENCH.parent,
        capture_output=True,
        text=True,
        check=False,
        timeout=scaled(timeout_s),
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def figures(file: Path) -> Any:
    return json.loads(file.read_text())


def test_all_can_be_imported() -> None:
    script = f"import sys; sys.path.insert(0, {str(BENCH)!r}); import {', '.join(PROGRAMS)}"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=TIMEOUT_S
    )
    assert done.returncode == 0, done.stderr


def test_each_benchmark_is_run_and_described() -> None:
    """A new benchmark needs a row in `QUICK` or `SLOW`, or a test of its own, and a row in bench/README.md."""
    own = set(re.findall(r'^    run\("(\w+)"', Path(__file__).read_text(), re.MULTILINE))
    assert sorted([*QUICK, *SLOW, *own]) == LISTED
    described = re.findall(r"^\| `(\w+)\.py` \|", (BENCH / "README.md").read_text(), re.MULTILINE)
    assert set(LISTED) - set(described) == set()


@pytest.mark.parametrize("program", QUICK)
def test_a_benchmark_ends(program: str) -> None:
    assert run(program, *QUICK[program].split())


@pytest.mark.full(reason="half a minute for each benchmark, most of it starts of servers")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("program", SLOW)
def test_a_benchmark_with_services_ends(program: str) -> None:
    assert run(program, *SLOW[program].split(), timeout_s=SLOW_TIMEOUT_S)


@pytest.mark.full(reason="figures of a benchmark, for nobody but its reader; that all benchmarks start is in each run")
def test_queries(tmp_path: Path) -> None:
    run("query", "--by-python", "--seconds", "0.1", "--events", "10", "--json", str(tmp_path / "found"))
    found = figures(tmp_path / "found")["figures"]
    assert {
        "1 x 10",
        "100 x 10",
        "1 x 1, and 1 traced",
        "1 x 1, and 1 function",
        "25 windows, 10 events",
        "1 x 10, as Feast",
    } <= found.keys()
    assert all(0 < figure["p50_ms"] <= figure["p99_ms"] and not figure["errors"] for figure in found.values())


@pytest.mark.full(reason="figures of a benchmark, for nobody but its reader; that all benchmarks start is in each run")
def test_endurance(kafka: str, postgres: str, tmp_path: Path) -> None:
    run("endurance", "--by-python", "--minutes", "0.02", "--kafka", kafka, "--postgres", postgres, "--json",
        str(tmp_path / "found"))  # fmt: skip
    found = figures(tmp_path / "found")
    assert found["lost"] == found["errors"] == 0
    assert found["written_per_second"] > 0
    assert all(window["requests"] > 0 for window in found["windows"])
    assert len(found["memory_mib"]) == len(found["windows"]) > 0


@pytest.mark.full(reason="figures of a benchmark, for nobody but its reader; that all benchmarks start is in each run")
def test_floors(kafka: str, tmp_path: Path) -> None:
    run("floors", "--records", "2000", "--kafka", kafka, "--json", str(tmp_path / "found"))
    found = figures(tmp_path / "found")["figures"]
    assert len(found) == 8
    assert all(figure["us"] > 0 for figure in found.values())


@pytest.mark.full(reason="figures of a benchmark, for nobody but its reader; that all benchmarks start is in each run")
def test_quality(tmp_path: Path) -> None:
    run("quality", "--rows", "1000", "--repeats", "1", "--json", str(tmp_path / "found"))


@pytest.mark.full(reason="figures of a benchmark, for nobody but its reader; that all benchmarks start is in each run")
def test_signals(tmp_path: Path) -> None:
    run("signals", "--seconds", "5", "--events", "10", "--json", str(tmp_path / "found"))
    found = figures(tmp_path / "found")["figures"]
    assert found.keys() == {"1 x 10", "100 x 10"}
    for figure in found.values():
        # So short a run doesn't show what takes more.
        assert figure["requests"] > 100
        assert figure["none_us"] > 0
        assert figure["metrics_ratio_error"] > 0


def test_sources_decoding(tmp_path: Path) -> None:
    run("sources_decoding", "--rows", "1000", "--json", str(tmp_path / "found"))
    found = figures(tmp_path / "found")["rows_per_second"]
    assert found.keys() == {"json", "avro", "protobuf"}
    assert all(rates["alone"] > 0 and rates["decoder"] > 0 for rates in found.values())


@pytest.mark.full(reason="figures of a benchmark, for nobody but its reader; that all benchmarks start is in each run")
def test_restart(tmp_path: Path) -> None:
    run("restart", "--keys", "1000", "--json", str(tmp_path / "found"))
    found = figures(tmp_path / "found")
    assert found["bytes"] > 0
    assert len(found["seconds"]) == 5
    assert all(seconds > 0 for seconds in found["seconds"].values())
