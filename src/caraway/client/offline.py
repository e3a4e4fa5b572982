"""The request of an offline query."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from caraway.client.arguments import input_features, output_features, require_columns
from caraway.client.frames import columns_of, instants
from caraway.connectors.data_connector import DataConnector
from caraway.errors import InvalidInputError
from caraway.featuresets.features import Feature
from caraway.featuresets.featureset import Featureset
from caraway.graph.connectors import S3Connector
from caraway.graph.systems import CSVFormat, RegisteredSystem, SecretRef

WHERE = "query_offline"
# The name by which a request refers to the source of its rows; it is that of Fennel's servers.
DATABASE = "extract_historical_s3_input"


def offline_body(
    inputs: Sequence[Feature | str],
    outputs: Sequence[Feature | Featureset | str],
    timestamp_column: str,
    frame: pd.DataFrame | None,
    *,
    input_s3: Any,
    output_s3: Any,
    feature_to_column_map: Mapping[Any, str] | None,
) -> dict[str, Any]:
    """Check the arguments of an offline query and return the body of its request."""
    names = list(input_features(inputs, WHERE))
    if frame is not None and input_s3 is not None:
        raise InvalidInputError(f"{WHERE}: give input_dataframe or input_s3, not both")
    return {
        "input_features": names,
        "output_features": _outputs(outputs),
        "input": {"S3": _s3_input(names, input_s3, feature_to_column_map)}
        if frame is None
        else {"Pandas": _frame_input(names, frame, timestamp_column, feature_to_column_map)},
        "timestamp_column": timestamp_column,
        "s3_output": None if output_s3 is None else s3_table(output_s3, "output_s3"),
    }


def explain_parameters(
    inputs: Sequence[Feature | str], outputs: Sequence[Feature | Featureset | str]
) -> dict[str, str]:
    """Check the features of an offline query, and return the parameters of a request that explains it."""
    return {"inputs": ",".join(input_features(inputs, WHERE)), "outputs": ",".join(_outputs(outputs))}


def _outputs(outputs: Sequence[Feature | Featureset | str]) -> list[str]:
    """Return the names of the wanted features; a featureset stands for its features that aren't deleted."""
    kept: list[Any] = []
    for item in outputs if isinstance(outputs, (list, tuple)) else ():
        if isinstance(item, Featureset):
            if item.to_spec().metadata.deleted:
                raise InvalidInputError(f"{WHERE}: featureset {item.fqn()} is deleted")
            kept += [feature for feature in item.features if not feature.metadata.deleted]
        elif isinstance(item, Feature) and item.metadata.deleted:
            raise InvalidInputError(f"{WHERE}: feature {item.fqn()} is deleted")
        else:
            kept.append(item)
    return list(output_features(kept if isinstance(outputs, (list, tuple)) else outputs, WHERE))


def _frame_input(
    names: Sequence[str], frame: object, timestamp_column: str, columns: Mapping[Any, str] | None
) -> dict[str, Any]:
    if columns is not None:
        raise InvalidInputError(f"{WHERE}: feature_to_column_map goes with input_s3 only")
    given = require_columns(frame, [*names, timestamp_column], WHERE)
    if not len(given):
        raise InvalidInputError(f"{WHERE}: the frame has no rows")
    rest = given.drop(columns=timestamp_column)
    return {**columns_of(rest), timestamp_column: instants(given[timestamp_column], len(given))}


def _s3_input(names: Sequence[str], bucket: object, columns: Mapping[Any, str] | None) -> dict[str, Any]:
    if bucket is None:
        raise InvalidInputError(f"{WHERE}: give input_dataframe, or input_s3 with bucket and prefix")
    sent: dict[str, Any] = {"s3_table": s3_table(bucket, "input_s3"), "compression": "None"}
    if columns is None:
        return sent
    by_name = {item.fqn() if isinstance(item, Feature) else str(item): column for item, column in columns.items()}
    if set(by_name) != set(names):
        raise InvalidInputError(
            f"{WHERE}: feature_to_column_map has {', '.join(sorted(by_name)) or 'nothing'}; it must have exactly the "
            f"inputs: {', '.join(sorted(names))}"
        )
    return {**sent, "feature_to_column_map": by_name}


def s3_table(bucket: Any, argument: str) -> dict[str, Any]:
    """Return a bucket in the form of a request."""
    where = f"{WHERE}: {argument}"
    spec = bucket.spec() if isinstance(bucket, DataConnector) else None
    if not isinstance(spec, S3Connector):
        raise InvalidInputError(f"{where} is what S3(...).bucket(name, prefix=...) gives, not {bucket!r}")
    if not spec.bucket or not spec.prefix:
        raise InvalidInputError(f"{where} needs both a bucket and a prefix")
    system = spec.system
    if isinstance(system, RegisteredSystem):
        raise InvalidInputError(f"{where}: {system.name} is known to the server only; give its credentials here")
    key, secret, role = system.access_key_id, system.secret_access_key, system.role_arn
    if isinstance(key, SecretRef) or isinstance(secret, SecretRef):
        raise InvalidInputError(f"{where}: an offline query takes access keys as text; leave them out, or use role_arn")
    if (key is None) != (secret is None):
        raise InvalidInputError(f"{where}: give both access key and secret, or neither")
    if key is not None and role is not None:
        raise InvalidInputError(f"{where}: give access keys or role_arn, not both")
    return {
        "bucket": spec.bucket,
        "path_prefix": spec.prefix,
        "pre_sorted": spec.presorted,
        "format": _format(spec.format),
        "db": {
            "name": DATABASE,
            "db": {
                "S3": {
                    "creds": None if key is None else {"access_key": key, "secret_key": secret},
                    "role_arn": role,
                }
            },
        },
    }


def _format(found: str | CSVFormat) -> Any:
    if isinstance(found, str):
        return found
    headers = {} if found.headers is None else {"headers": list(found.headers)}
    return {"csv": {"delimiter": ord(found.delimiter), **headers}}
