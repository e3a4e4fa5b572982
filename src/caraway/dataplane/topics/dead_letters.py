"""The topic of rows that could not be processed, with one JSON object in each record."""

# The topic has rows that an endpoint refused (`caraway.dataplane.ingest`), and rows for which a step of a pipeline
# failed (`caraway.dataplane.streams.spark.letters`).
DEAD_LETTERS = "caraway.dead-letters"
# Each dead letter has a key of its own, so compaction of the topic removes none of them. If the row of a dead letter is
# erased, a record with the same key and no value removes the letter. The ratio makes Kafka compact soon.
DEAD_LETTERS_CONFIG = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
# The size of a key in bytes. A key is random or a hash, so two keys are never equal by chance.
KEY_BYTES = 16
# The most bytes of a row's JSON in a dead letter of an endpoint, and the most characters of it in a dead letter of a
# step. Only the beginning of a larger row is kept, so a dead letter stays far below Kafka's limit of 1 MB.
MAX_PAYLOAD = 16 * 1024
