"""The engine: one Spark driver that runs the jobs of the registry. Start it with `python -m caraway.engine`."""
