"""Archives of the classes of Kafka and Spark (`caraway.class_archives`)."""
