"""The embedded stack: Postgres, Kafka, engine and server as supervised processes in a data folder."""

from caraway.stack.kafka import EmbeddedKafka
from caraway.stack.part import Part, PartState, PartStatus
from caraway.stack.postgres import EmbeddedPostgres
from caraway.stack.stack import Stack

__all__ = ["EmbeddedKafka", "EmbeddedPostgres", "Part", "PartState", "PartStatus", "Stack"]
