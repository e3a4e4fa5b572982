# The steps of CI, each by itself. `./run setup` makes the environment; after that `uv run just <recipe>`, or `./run just <recipe>`.

python := ".venv/bin/python"

# How many processes run what needs real services: it mostly waits, so more of them than processors. Each takes some 3 GB.
processes := env("CARAWAY_TEST_PROCESSES", "3")

# List the recipes.
default:
    @just --list

# Compile proto/ and jvm/ in place.
build *options:
    {{python}} hatch_build.py {{options}}

# Lint, format, types, layers: everything that reads code without running it.
check:
    .venv/bin/ruff check .
    .venv/bin/ruff format --check .
    .venv/bin/mypy
    .venv/bin/lint-imports --no-logo --no-cache
    {{python}} -m tests.spec.coverage

# Which rows of the specification have a test.
spec-coverage *options:
    {{python}} -m tests.spec.coverage {{options}}

# Put imports in order, format, and mend what ruff can mend.
fix:
    .venv/bin/ruff check --fix .
    .venv/bin/ruff format .

# Compiling the tests would take a third of the fast tier's time: their byte code is kept, whatever the shell says.
# Plugins that no unit test needs would be imported three times.

# The fast tier: no JVM, no services, few examples for each property; under half a minute.
test-fast *options:
    env -u PYTHONDONTWRITEBYTECODE CARAWAY_TESTS=fast {{python}} -m pytest tests/unit -m "not slow" -n 2 --dist worksteal -p no:schemathesis -p no:anyio {{options}}

# Everything (docs/ci.md): all unit tests, then what needs real Postgres, Kafka and Spark, and both engines over fixed seeds.
test *options:
    {{python}} -m pytest tests/unit -n 2 --dist worksteal {{options}}
    {{python}} -m pytest tests/integration tests/e2e tests/parity/test_parity.py -n {{processes}} --dist loadscope --no-loadscope-reorder --durations=20 {{options}}

# The streaming engine against the in-process one, over fixed seeds and those that failed once, and over four kills.
parity *options:
    {{python}} -m pytest tests/parity {{options}}

# Damage, full disks, engines that come back, functions that do their worst (docs/faults.md); some twenty minutes.
faults *options:
    {{python}} -m pytest tests/faults {{options}}

# Compare the streaming engine with the in-process one over fresh random graphs, for so many minutes, then over so many kills (docs/parity.md); then simulate control and engines for long (docs/control.md).
soak minutes="10" kills="30":
    {{python}} -m tests.parity.soak {{minutes}} {{kills}}
    CARAWAY_TESTS=soak {{python}} -m pytest tests/integration/control/test_simulation.py tests/unit/engine/test_tenancy.py

# Run the benchmarks and print their figures.
bench *options:
    {{python}} -m bench {{options}}

# Bring the lock up to date with pyproject.toml.
lock *options:
    uv lock {{options}}
