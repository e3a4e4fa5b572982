"""Programs that a test runs as another user."""

import sys
from pathlib import Path

import pytest

from caraway.process.confinement import places


def python_for_all() -> str:
    """Return a Python that every user may run: this one, or the system's if it has the same version."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    ours = Path(sys.executable).resolve()
    for candidate in (ours, Path(f"/usr/bin/python{version}")):
        if candidate.is_file() and places.open_to_all([candidate]):
            return str(candidate)
    pytest.skip("an ordinary user can't run any Python of this version")
