"""Tests that the benchmarks start, and that those that need no Spark return figures, with tiny sizes."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

BENCH = Path(__file__).parents[3] / "bench"
TIMEOUT_S = 240
PROGRAMS = sorted(path.stem for path in BENCH.glob("*.py") if path.stem != "__main__")


def run(program: str, *options: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "bench", program, *options],
        cwd=BENCH.parent,
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
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
