# The steps of CI, each by itself. `./run setup` makes the environment; after that `uv run just <recipe>`, or `./run just <recipe>`.

python := ".venv/bin/python"

# How many processes run tests: as many as there are cores, since starts of JVMs want all of them. What needs real
# services takes some 3 GB a process, so there are no more than four of these.
cores := num_cpus()
processes := env("CARAWAY_TEST_PROCESSES", if cores =~ '^[1-4]$' { cores } else { "4" })
# Each process that runs unit tests collects all of them, which takes it 16 s of a processor. On two cores one process
# has run them by the time at which the tests with services end, and it takes what these leave.
units := if cores =~ '^[12]$' { "0" } else { cores }
services := "--dist loadscope --no-loadscope-reorder --durations=20"

# Byte code is kept, whatever the shell says: tests start hundreds of Python processes, and each would compile what it
# imports, which takes seconds of the processor's time.
export PYTHONDONTWRITEBYTECODE := ""

# List the recipes.
default:
    @just --list

# Compile proto/ and jvm/ in place.
build *options:
    {{python}} hatch_build.py {{options}}

# Build the wheel, with the compiled Java part in it, and the sdist, into dist/.
dist folder="dist":
    {{python}} -m hatchling build -d {{folder}}

# Lint, format, types, layers, and what documents and comments say: everything but tests of the code.
[parallel]
check: _types _rest

# mypy takes as long as all other checks together, and a third of that with the results of an earlier run, which it finds
# by the content of files: so a fresh clone finds those of another one.
_types:
    .venv/bin/mypy --cache-dir "${CARAWAY_CACHE_DIR:-$HOME/.cache/caraway}/mypy"

_rest:
    {{python}} -m pytest tests/docs -q -p no:schemathesis -p no:anyio
    .venv/bin/ruff check .
    .venv/bin/ruff format --check .
    .venv/bin/lint-imports --no-logo --no-cache
    {{python}} -m tests.spec.coverage

# Compile the tests, and the modules that they import.
_compile:
    {{python}} -m pytest tests/unit tests/integration tests/e2e tests/parity --collect-only -qq

# The rooms of src/caraway, their floors, and who imports whom.
map:
    {{python}} -m tests.rooms

# Which rows of the specification have a test.
spec-coverage *options:
    {{python}} -m tests.spec.coverage {{options}}

# Put imports in order, format, and mend what ruff can mend.
fix:
    .venv/bin/ruff check --fix .
    .venv/bin/ruff format .

# Plugins that no unit test needs would be imported three times.

# The fast tier: no JVM, no services, few examples for each property; under half a minute.
test-fast *options:
    CARAWAY_TESTS=fast {{python}} -m pytest tests/unit -m "not slow and not full" -n {{cores}} --dist worksteal -p no:schemathesis -p no:anyio {{options}}

# What guards most (docs/inside/ci.md): unit tests, and what needs real Postgres, Kafka and Spark, less the tests marked `full`.
test *options:
    #!/usr/bin/env bash
    # Tests of services leave a part of the processor's time unused, because they wait. Unit tests use that time. Both
    # parts always run to their end: one run reports everything.
    export CARAWAY_TESTS=ci
    failed=0
    said=$(mktemp)
    {{python}} -m pytest tests/unit -m "not full" -p no:schemathesis -p no:anyio -n {{units}} --dist worksteal --durations=10 {{options}} >"$said" 2>&1 &
    units=$!
    {{python}} -m pytest tests/integration tests/e2e tests/parity -m "not full" -n {{processes}} {{services}} {{options}} || failed=$?
    wait "$units" || failed=$?
    cat "$said"
    rm -f "$said"
    exit $failed

# Archives of the classes of Kafka and Spark, with which they start in less of the processor's time (decision 32).
archives:
    .venv/bin/caraway jars --classes

# The long tests, in pieces of at most twenty minutes: all of them, some by name, those that haven't passed for what is here (--changed); --list says what each guards.
full *options:
    @{{python}} -m tests.pieces {{options}}

# The streaming engine against the in-process one, over fixed seeds and those that failed once, and over five kills.
parity *options:
    {{python}} -m pytest tests/parity {{options}}

# Damage, full disks, engines that come back, functions that do their worst (docs/operate/faults.md); some 25 minutes.
faults *options:
    {{python}} -m pytest tests/faults {{options}}

# Send so many malformed requests to a server, with a fresh seed, which is printed (CARAWAY_FUZZ_SEED repeats one); it must answer none with 5xx, stay alive and small, and keep no other caller waiting. By itself on the machine: it measures waits.
fuzz requests="10000":
    CARAWAY_FUZZ_REQUESTS={{requests}} {{python}} -m pytest tests/integration/server/test_fuzz.py -q -s -p no:schemathesis

# Compare the streaming engine with the in-process one over fresh random graphs, for so many minutes, then over so many kills (docs/inside/parity.md).
soak minutes="10" kills="30":
    {{python}} -m tests.parity.soak {{minutes}} {{kills}}

# Simulate commits, crashes and engines, six times as long as other tests do (docs/operate/control.md).
simulate:
    CARAWAY_TESTS=soak {{python}} -m pytest tests/integration/control/test_simulation.py tests/unit/dataplane/streams/engine/test_job_ownership.py

# Run the benchmarks and print their figures.
bench *options:
    {{python}} -m bench {{options}}

# Try clone and wheel on a machine that has Python and git alone (docs/inside/ci.md); needs root and debootstrap.
bare-machine *options:
    tests/bare/machine.sh {{options}}

# Look up known vulnerabilities of all locked packages; fails if they can't be looked up.
audit:
    {{python}} -m tests.audit

# Bring the lock up to date with pyproject.toml.
lock *options:
    uv lock {{options}}
