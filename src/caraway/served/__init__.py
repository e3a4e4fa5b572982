"""Features that queries with `log=true` served: their log on a topic, and its archive in the object store."""
