"""`just audit`: known vulnerabilities of all packages in uv.lock, by pip-audit.

pip-audit passes over a package that its service doesn't know, which a mirror without that service makes of all of them.
Here that is a failure: what wasn't looked up isn't known to be safe.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SHOWN = 5


def problems(report: Mapping[str, Any]) -> Sequence[str]:
    """Return what a report of pip-audit (`--format json`) has against the packages; nothing if all were found safe."""
    found = []
    packages = report["dependencies"]
    if not packages:
        found.append("pip-audit looked at no package")
    unknown = [package for package in packages if "skip_reason" in package]
    if unknown:
        names = ", ".join(package["name"] for package in unknown[:SHOWN])
        reason = unknown[0]["skip_reason"]
        found.append(f"{len(unknown)} of {len(packages)} packages could not be looked up ({names}, ...): {reason}")
    for package in packages:
        for hole in package.get("vulns", ()):
            mended = ", ".join(hole["fix_versions"]) or "no version yet"
            found.append(f"{package['name']} {package['version']}: {hole['id']}, mended in {mended}")
    return found


def main() -> int:
    """Look up all locked packages; return the exit code: 0 only if each was looked up and none has a known hole."""
    uv = shutil.which("uv") or shutil.which("uv", path=str(ROOT / ".uv" / "bin"))
    if uv is None:
        sys.stderr.write("audit: uv isn't here: `./run setup` installs it\n")
        return 2
    with tempfile.TemporaryDirectory() as folder:
        locked = Path(folder, "requirements.txt")
        export = ["export", "--frozen", "--all-extras", "--all-groups", "--no-emit-project", "--quiet"]
        subprocess.run([uv, *export, "--output-file", str(locked)], cwd=ROOT, check=True)
        audit = ["run", "--isolated", "--frozen", "--only-group", "audit", "--quiet", "pip-audit"]
        options = ["--requirement", str(locked), "--require-hashes", "--disable-pip", "--progress-spinner", "off"]
        command = [uv, *audit, *options, "--format", "json"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    try:
        report = json.loads(done.stdout)
    except ValueError:
        sys.stderr.write(f"audit: nothing was looked up; pip-audit said:\n{done.stderr[-2000:]}\n")
        return 2
    found = problems(report)
    sys.stdout.write(
        "".join(f"{problem}\n" for problem in found) or "all locked packages were looked up, none has a hole\n"
    )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
