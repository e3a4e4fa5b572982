"""Run a benchmark: `python -m bench NAME [its options]`; without a name, the list of them."""

import runpy
import sys
from pathlib import Path

HERE = Path(__file__).parent
# Modules that are no benchmarks: they are shared, or are a server that a benchmark starts.
NO_PROGRAMS = {
    "__main__",
    "alone",
    "capture_report",
    "drivers",
    "ingest_cases",
    "load",
    "more_jobs",
    "operator_cases",
    "processor_times",
    "quiet",
    "reports",
    "services",
}


PROGRAMS = sorted(path.stem for path in HERE.glob("*.py") if path.stem not in NO_PROGRAMS)


def main() -> int:
    """Run the benchmark that the arguments name, or list all."""
    if len(sys.argv) < 2 or sys.argv[1] not in PROGRAMS:
        print(f"python -m bench NAME [options]; NAME is one of {', '.join(PROGRAMS)} (bench/README.md)")
        return len(sys.argv) > 1
    program = HERE / f"{sys.argv[1]}.py"
    # The benchmark sees its arguments as if it had been started by itself.
    sys.argv = [str(program), *sys.argv[2:]]
    sys.path.insert(0, str(HERE))
    runpy.run_path(str(program), run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main())
