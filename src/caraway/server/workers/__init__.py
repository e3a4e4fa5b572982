"""Several processes for one server (decision 22).

One writes the index and does all that changes something, the others answer queries on one port. `supervisor` starts
them again when they end. The writer is a server as it is alone, but on a socket that only the others know. `reader`
reads the writer's index, in its own process, and passes on what isn't a query.
"""
