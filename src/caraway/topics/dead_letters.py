"""The topic of rows that could not be processed, with one JSON object in each record."""

# The topic has rows that an endpoint refused (`caraway.ingest`), and rows at which a step of a pipeline failed
# (`caraway.spark.letters`).
DEAD_LETTERS = "caraway.dead-letters"
# Characters of a row in a dead letter: of a larger row only the beginning of its text is kept, so that a dead letter is
# always far below Kafka's limit for a message.
MAX_PAYLOAD = 16 * 1024
