"""A deployment in the database of the test."""

import pytest
import sqlalchemy as sa

from tests.integration.state.deployment import Deployment


@pytest.fixture
def here(engine: sa.Engine) -> Deployment:
    return Deployment(engine)
