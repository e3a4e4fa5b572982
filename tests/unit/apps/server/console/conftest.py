"""Plain tracebacks: a page that fails would otherwise be shown with all values, which takes minutes."""

from collections.abc import Iterator

import pytest
import structlog


@pytest.fixture(autouse=True)
def plain_logs() -> Iterator[None]:
    before = structlog.get_config()
    renderer = structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback)
    structlog.configure(processors=[renderer])
    yield
    structlog.configure(**before)
