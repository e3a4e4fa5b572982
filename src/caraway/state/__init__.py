"""The durable state of the control plane in Postgres: commits, assets, jobs, access.

`StateReader` reads, `StateWriter` writes, `JobRegistry` is the engines' view; `migrate` brings the schema to this
version. Everything here that reads or writes raises `UnavailableError` if Postgres doesn't answer; docstrings mention
that error only where there is more to say.
"""
