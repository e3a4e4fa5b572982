"""axe-core, which looks for faults of accessibility in a page. It is fetched by npm, and kept in the cache."""

import hashlib
import subprocess
import tarfile
import tempfile
from pathlib import Path
from shutil import which

from caraway.process.settings.settings import load_settings
from tests.timeouts import scaled

VERSION = "4.14.1"
SHA256 = "e6b0ce02b84d892e2e33e403485e7f3d6c29e2be6df65daf44d89ba564139745"
FETCH_S = 120.0


def axe_script() -> str:
    """Return the source text of axe-core; fetch it if it isn't in the cache."""
    archive = load_settings().cache_dir / f"axe-core-{VERSION}.tgz"
    if not archive.is_file():
        _fetch(archive)
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    assert digest == SHA256, (
        f"{archive} has the SHA-256 {digest} instead of {SHA256}; delete it, and run the test again"
    )
    with tarfile.open(archive) as opened:
        member = opened.extractfile("package/axe.min.js")
        assert member is not None, f"{archive} has no axe.min.js"
        return member.read().decode()


def _fetch(archive: Path) -> None:
    npm = which("npm")
    assert npm is not None, (
        f"{archive} isn't there, and npm isn't either, which fetches it: install Debian's package npm"
    )
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=archive.parent) as scratch:
        command = [npm, "pack", "--silent", f"axe-core@{VERSION}"]
        done = subprocess.run(
            command, cwd=scratch, capture_output=True, text=True, check=False, timeout=scaled(FETCH_S)
        )
        assert done.returncode == 0, (
            f"npm can't fetch axe-core {VERSION}: {done.stderr.strip()}; put its archive into {archive}, or let npm "
            "reach a registry"
        )
        # Another process may have been faster; both files are the same.
        (Path(scratch) / archive.name).replace(archive)
