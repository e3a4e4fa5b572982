"""The report of a benchmark: its last line of output, and a file if one is wanted."""

import json
import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def publish(report: Mapping[str, Any], path: Path | None) -> None:
    """Print a report as one line of JSON, and write it to a file as well unless `path` is None.

    The number of processors and Python's version are added.
    """
    whole = {**report, "cpus": os.cpu_count(), "python": platform.python_version()}
    print(json.dumps(whole))
    if path:
        path.write_text(json.dumps(whole, indent=2))
