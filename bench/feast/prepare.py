"""A script that makes a Feast repository with one feature view of ten features, and fills its online store.

It runs in Feast's own environment: python prepare.py FOLDER ENTITIES FEATURES
"""

import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pandas as pd
from feast import Entity, FeatureStore, FeatureView, Field, FileSource, ValueType
from feast.types import Float64

CONFIG = """\
project: bench
provider: local
registry: registry.db
online_store:
  type: sqlite
  path: online.db
entity_key_serialization_version: 3
"""


def main() -> None:
    """Define the view, apply it, and materialise it."""
    folder, entities, features = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    (folder / "feature_store.yaml").write_text(CONFIG)
    now = datetime.now(tz=UTC)
    names = [f"f{number}" for number in range(features)]
    rows = {"driver": range(entities), "at": [now - timedelta(minutes=1)] * entities}
    rows |= {name: [entity + number / 8 for entity in range(entities)] for number, name in enumerate(names)}
    pd.DataFrame(rows).to_parquet(folder / "drivers.parquet")
    driver = Entity(name="driver", join_keys=["driver"], value_type=ValueType.INT64)
    view = FeatureView(
        name="drivers",
        entities=[driver],
        ttl=timedelta(days=365),
        schema=[Field(name=name, dtype=Float64) for name in names],
        source=FileSource(path=str(folder / "drivers.parquet"), timestamp_field="at"),
    )
    store = FeatureStore(repo_path=str(folder))
    store.apply([driver, view])
    store.materialize(now - timedelta(hours=1), now)


main()
