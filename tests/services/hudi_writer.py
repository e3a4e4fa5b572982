"""Writes and reads Hudi tables by Hudi's own code, for `tests.services.hudi`.

The program runs in an environment that has a PySpark for which there is a Hudi. It takes a JSON object on each line,
and answers each by one.
"""

import json
import sys
from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession

META = "_hoodie_"
SETTINGS = {
    "spark.driver.memory": "1g",
    "spark.default.parallelism": "1",
    "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
    "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
    "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "1",
    "spark.ui.enabled": "false",
}


def main() -> None:
    # Hudi's classes must be on the class path of the JVM itself. As one of `spark.jars` they have a class loader of
    # their own, which threads of Hudi's pools don't ask, and these then read records as if they were of another class.
    builder = SparkSession.builder.master("local[1]").config("spark.driver.extraClassPath", sys.argv[1])
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    for line in sys.stdin:
        try:
            answer = {"rows": run(spark, json.loads(line))}
        except Exception as error:  # noqa: BLE001 (whatever it is, the test shows it)
            answer = {"error": [str(error)]}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def run(spark: SparkSession, command: Mapping[str, Any]) -> list[Any]:
    match command:
        case {"write": path, "rows": rows, "schema": schema, "options": options}:
            texts = spark.sparkContext.parallelize([json.dumps(row) for row in rows], 1)
            frame = spark.read.schema(schema).json(texts)
            frame.write.format("hudi").options(**options).mode("append").save(path)
            return []
        case {"read": path, "options": options}:
            frame = spark.read.format("hudi").options(**options).load(path)
            return found(frame.select(*[name for name in frame.columns if not name.startswith(META)]))
        case _:
            return found(spark.sql(command["sql"]))


def found(frame: DataFrame) -> list[Any]:
    return [json.loads(str(row)) for row in frame.toJSON().collect()]


main()
