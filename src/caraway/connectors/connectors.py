"""All connectors in one module, under the names that the API has."""

# Compatibility only: new code imports from `caraway.connectors`.
from caraway import connectors
from caraway.connectors import *
from caraway.connectors.sink import SnapshotData

__all__ = ["SnapshotData"]
__all__ += connectors.__all__
