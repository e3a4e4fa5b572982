"""The topic of rows that could not be processed, with one JSON object in each record."""

# The topic has rows that an endpoint refused (`caraway.dataplane.ingest`), and rows at which a step of a pipeline
# failed (`caraway.dataplane.streams.spark.letters`).
DEAD_LETTERS = "caraway.dead-letters"
# A dead letter has a key that no other one has. So the topic is compacted without losing any, and one whose row is
# erased is removed by a record of its key without a value. The ratio lets Kafka do that soon.
DEAD_LETTERS_CONFIG = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
# The bytes of a key, which is random or a hash: two of them are never equal by chance.
KEY_BYTES = 16
# The most bytes of the JSON of a row in a dead letter of an endpoint, and the most characters of it in one of a step.
# Only the beginning of a larger row is kept, so a dead letter stays far below Kafka's limit of 1 MB.
MAX_PAYLOAD = 16 * 1024
