"""Two tiers: `just test` runs what guards most, `just full` runs everything (docs/ci.md).

A test is in the second tier if it has the mark `full`, which must say why it isn't run each time:
`@pytest.mark.full(reason="two engines, killed and started again, for two minutes")`.
"""

from collections.abc import Iterable

import pytest

MARK = "full"


def check_reasons(items: Iterable[pytest.Item]) -> None:
    """Check that each test of the second tier says why it is there.

    Raises:
        pytest.UsageError: A mark has no reason, or something else beside it.
    """
    for item in items:
        for mark in item.iter_markers(MARK):
            reason = mark.kwargs.get("reason")
            if mark.args or set(mark.kwargs) != {"reason"} or not isinstance(reason, str) or not reason.strip():
                raise pytest.UsageError(f'{item.nodeid}: the mark must read `pytest.mark.{MARK}(reason="...")`')


def selected(request: pytest.FixtureRequest, argument: str) -> list[object]:
    """Return the values of a parameter in the tests that use the requesting fixture and that this session runs.

    Each value is returned once. Tests of the same module that don't use the fixture don't count.

    A fixture that starts something for each case starts it only for cases that are tested.
    """
    values: list[object] = []
    for item in request.session.items:
        if not isinstance(item, pytest.Function) or item.path != request.path:
            continue
        if hasattr(item, "callspec") and request.fixturename in item.fixturenames:
            value = item.callspec.params.get(argument)
            if value is not None and value not in values:
                values.append(value)
    return values
