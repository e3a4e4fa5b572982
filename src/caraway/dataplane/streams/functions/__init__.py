"""Functions of pipelines run in processes of their own, which Spark's Python workers hold."""
