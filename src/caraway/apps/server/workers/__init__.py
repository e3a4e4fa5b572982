"""Several processes for one server (decision 22).

The writer writes the index and does everything that changes state; the readers answer queries on one port. `supervisor`
starts a process again when it ends. The writer is a server as in a single process, but listens on a socket that only
the other processes know. `reader` reads the writer's index in its own process, and passes requests other than queries
on to the writer.
"""
