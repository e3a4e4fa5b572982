"""Processes that this one starts: how they are started, watched, started again and ended.

A `Part` says how its process is started and when it works; a `Runner` keeps it running. The embedded stack runs
Postgres, Kafka, engine and server so, and a server of several processes its writer and readers.
"""
