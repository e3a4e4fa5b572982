"""The topic of rows that could not be processed, with one JSON object in each record."""

# The topic has rows that an endpoint refused (`caraway.ingest`), and rows at which a step of a pipeline failed
# (`caraway.spark.letters`).
DEAD_LETTERS = "caraway.dead-letters"
# The most bytes of the JSON of a row in a dead letter of an endpoint, and the most characters of it in one of a step.
# Only the beginning of a larger row is kept, so a dead letter stays far below Kafka's limit of 1 MB.
MAX_PAYLOAD = 16 * 1024
