"""The engine: one Spark driver that runs the jobs of the registry."""
