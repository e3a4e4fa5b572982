"""Functions for notebooks and scripts, which find the server by themselves."""

from collections.abc import Sequence
from typing import Any

from caraway.client.client import Client
from caraway.client.training import TrainingSet
from caraway.featuresets.features import Feature
from caraway.featuresets.featureset import Featureset


def training_set(
    inputs: Sequence[Feature | str],
    outputs: Sequence[Feature | Featureset | str],
    timestamp_column: str,
    rows: Any,
    *,
    client: Client | None = None,
    as_known: bool = False,
    before: bool = False,
    execution: str = "auto",
    timeout: float | None = None,
    progress: bool | None = None,
) -> TrainingSet:
    """Compute features for each row as of the row's time; see `Client.training_set`.

    `client` is the client to use; by default one of the server that the environment names, or that runs on this
    machine.
    """
    asked = client or Client()
    return asked.training_set(
        inputs,
        outputs,
        timestamp_column,
        rows,
        as_known=as_known,
        before=before,
        execution=execution,
        timeout=timeout,
        progress=progress,
    )
