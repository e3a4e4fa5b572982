"""Archives of the loaded classes of Kafka and Spark, with which their JVMs start faster."""
