"""The reader of streams of AWS Kinesis."""
