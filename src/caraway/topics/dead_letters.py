"""The topic of what could not be processed, one JSON object a record."""

# Rows that an endpoint refused (`caraway.ingest`), rows at which a step of a pipeline failed (`caraway.spark.letters`).
DEAD_LETTERS = "caraway.dead-letters"
# A larger row goes there as the head of its text, in characters.
MAX_PAYLOAD = 16 * 1024
