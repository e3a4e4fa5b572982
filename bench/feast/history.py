"""A script that asks Feast's file store for features at points in time, and prints how long the best of some runs took.

It runs in Feast's own environment: python history.py FOLDER FEATURES RUNS

FOLDER has `history.parquet` (driver, at, features) and `asked.parquet` (driver, event_timestamp). The answer of the
last run is written to `answer.parquet` there.
"""

import json
import sys
import time
from datetime import timedelta
from pathlib import Path

import pandas as pd
from feast import Entity, FeatureStore, FeatureView, Field, FileSource, ValueType
from feast.types import Float64

CONFIG = """\
project: bench
provider: local
registry: registry.db
offline_store:
  type: file
online_store:
  type: sqlite
  path: online.db
entity_key_serialization_version: 3
"""


def main() -> None:
    """Define the view, ask, and print the seconds of each run."""
    folder, features, runs = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    (folder / "feature_store.yaml").write_text(CONFIG)
    names = [f"f{number}" for number in range(features)]
    driver = Entity(name="driver", join_keys=["driver"], value_type=ValueType.INT64)
    view = FeatureView(
        name="drivers",
        entities=[driver],
        ttl=timedelta(days=3650),
        schema=[Field(name=name, dtype=Float64) for name in names],
        source=FileSource(path=str(folder / "history.parquet"), timestamp_field="at"),
    )
    store = FeatureStore(repo_path=str(folder))
    store.apply([driver, view])
    asked = pd.read_parquet(folder / "asked.parquet")
    seconds = []
    for _ in range(runs):
        started = time.perf_counter()
        answer = store.get_historical_features(entity_df=asked, features=[f"drivers:{name}" for name in names]).to_df()
        seconds.append(time.perf_counter() - started)
    answer.to_parquet(folder / "answer.parquet")
    print(json.dumps(seconds))


main()
