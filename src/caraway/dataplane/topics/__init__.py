"""The Kafka topics of the datasets: their records, creating them, writing to them (docs/inside/records.md)."""
