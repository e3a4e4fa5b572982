"""The way of rows: from sources and requests through topics, streams, indexes and archive to sinks."""
