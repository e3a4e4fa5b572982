"""A client that asks a server for online features through Feast's remote online store, and prints them.

It runs in Feast's own environment: python client.py FOLDER REQUEST

FOLDER has Feast's configuration, `feature_store.yaml`. REQUEST is JSON: `view`, its `entity`, `features` by name with
Feast's types, and `rows`, the entity's values.
"""

import json
import sys
from datetime import timedelta
from pathlib import Path

from feast import Entity, FeatureStore, FeatureView, Field, FileSource, ValueType, types


def main() -> None:
    """Define the view as Feast needs it, and read it in both of Feast's ways."""
    folder, request = Path(sys.argv[1]), json.loads(sys.argv[2])
    entity = Entity(name=request["entity"], join_keys=[request["entity"]], value_type=ValueType.INT64)
    view = FeatureView(
        name=request["view"],
        entities=[entity],
        ttl=timedelta(days=1),
        schema=[Field(name=name, dtype=getattr(types, dtype)) for name, dtype in request["features"].items()],
        source=FileSource(path=str(folder / "nothing.parquet"), timestamp_field="at"),
    )
    store = FeatureStore(repo_path=str(folder))
    # apply() isn't used, because it would look for the file.
    store.registry.apply_entity(entity, project=store.project)
    store.registry.apply_feature_view(view, project=store.project)
    references = [f"{request['view']}:{name}" for name in request["features"]]
    rows = [{request["entity"]: value} for value in request["rows"]]
    by_store = store.get_online_features(features=references, entity_rows=rows).to_dict()
    full = store.get_online_features(features=references, entity_rows=rows, full_feature_names=True).to_dict()
    print(json.dumps({"plain": by_store, "full": full}))


main()
