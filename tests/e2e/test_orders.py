"""The example in examples/orders, without Docker, as its README has it."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 280


@pytest.mark.full(reason="a Postgres, a Kafka and an object store beside a whole stack, for a minute")
def test_a_captured_table_and_orders_become_features_and_a_delta_table() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "examples.orders", "--customers", "300", "--orders", "3000"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert "Every value is as expected." in done.stdout
