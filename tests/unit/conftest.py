import pytest

from caraway.graph.runtime import lookup_provider, secret_provider


@pytest.fixture(autouse=True)
def _nobody_answers() -> None:
    """Forget the mock client of an earlier test, which would answer lookups as long as it exists."""
    lookup_provider.set(None)
    secret_provider.set(None)
