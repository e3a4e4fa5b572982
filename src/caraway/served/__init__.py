"""Features that queries with `log=true` served: their log on a topic, and the rows of its table in the archive."""
