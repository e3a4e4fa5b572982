"""The audit passes only if each package was looked up and none has a known vulnerability."""

from typing import Any

import pytest

from tests.audit import problems

SAFE = {"name": "rich", "version": "15.0.0", "vulns": []}
UNKNOWN = {"name": "typer", "skip_reason": "Dependency not found on PyPI and could not be audited: typer (0.29.2)"}
HOLED = {"name": "idna", "version": "3.6", "vulns": [{"id": "PYSEC-2024-60", "fix_versions": ["3.7"]}]}
UNMENDED = {"name": "idna", "version": "3.6", "vulns": [{"id": "PYSEC-2024-61", "fix_versions": []}]}


def test_safe_packages_pass() -> None:
    assert problems({"dependencies": [SAFE, SAFE]}) == []


@pytest.mark.parametrize(
    ("packages", "said"),
    [
        ([], "no package"),
        ([SAFE, UNKNOWN], "1 of 2 packages could not be looked up (typer, ...): Dependency not found"),
        ([SAFE, HOLED], "idna 3.6: PYSEC-2024-60, mended in 3.7"),
        ([UNMENDED], "PYSEC-2024-61, mended in no version yet"),
    ],
)
def test_what_is_unknown_or_holed_fails(packages: list[dict[str, Any]], said: str) -> None:
    [problem] = problems({"dependencies": packages})
    assert said in problem
