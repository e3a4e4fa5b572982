"""Records and rows to and from their bytes, by the functions of `io.caraway.RowCodec`."""

from collections.abc import Iterable

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as spark

from caraway.dataplane.streams.spark.java import call_java, jvm_of
from caraway.dataplane.streams.spark.types import row_type
from caraway.graph.plan.model import RecordSchema

# The meta columns, which a record has beside its row. No Python identifier has a "$", so no user's column has one of
# these names.
OP, TIME, INGESTED, ID, REV, OFFSET = "$op", "$time", "$ingested", "$id", "$rev", "$offset"
META = (OP, TIME, INGESTED, ID, REV, OFFSET)

# A stream that contains pass-through rows (`caraway.dataplane.streams.spark.inputs`) has these columns besides: the
# side, which says for which later step a row is; its Kafka key; and its encoded row.
SIDE, KEY, PACKED = "$side", "$key", "$packed"
PASS_THROUGH = (SIDE, KEY, PACKED)

# The side of the rows that the steps process, and the side of dead letters (`caraway.dataplane.streams.spark.letters`),
# which the steps pass on unchanged.
OWN, DEAD = 0, -1
# The side of markers, which are records without a row that show how far a job is (`caraway.dataplane.topics.markers`).
# The sides of the left rows of unions, which `caraway.dataplane.streams.spark.inputs` sets aside, count down from -3.
MARKER = -(2**31)
# If a job gathers the records that it makes of a block (`caraway.dataplane.streams.spark.blocks`), a row of side BEGIN
# precedes the block's records, and a row of side END follows them. In the column `number`, which numbers the records of
# a block, these rows have BEGIN_NUMBER and END_NUMBER.
BEGIN, END = MARKER + 1, MARKER + 2
BEGIN_NUMBER, END_NUMBER = -1, -2

PUT, RETRACT, DELETE = 1, 0, -1


def name(column: str) -> Column:
    """Return the column with exactly this name; without quotes, Spark would interpret a dot or a dollar sign in it."""
    return F.col(f"`{column}`")


class Codec:
    """The codec functions of one Spark session."""

    def __init__(self, session: SparkSession) -> None:
        """Use the classes on the class path of `session`'s JVM."""
        self._codec = jvm_of(session).io.caraway.RowCodec

    def split(self, kafka: DataFrame, *, with_ends: bool = False) -> DataFrame:
        """Return Kafka's messages with a row for each record of a block, whose column `number` is its number in it.

        If `with_ends` is set, the records of a block are between a row of BEGIN_NUMBER and one of END_NUMBER.
        """
        place = F.col("partition"), F.col("offset")
        records = call_java(self._codec.blockSplitter(with_ends), F.col("key"), F.col("value"), *place)
        return (
            kafka.select("key", "topic", *place, records.alias("records"))
            .select("key", "topic", *place, F.explode("records").alias("record"))
            .select("key", "topic", *place, "record.value", "record.number")
        )

    def decode_records(self, kafka: DataFrame, schema: RecordSchema) -> DataFrame:
        """Turn Kafka's columns into the record's: meta columns, and the row's columns under their names.

        A row that is null, as in a retraction or delete, has null columns. Reading a record of another schema fails the
        query.
        """
        record = self.record(schema).alias("r")
        parts = ("op", "time", "ingested", "id", "rev")
        return kafka.select(record, F.col("key"), F.col("offset")).select(
            *(F.col(f"r.{part}").alias(f"${part}") for part in parts),
            F.col("offset").alias(OFFSET),
            *self.columns("r", F.col("key"), schema),
        )

    def columns(self, record: str, key: Column, schema: RecordSchema) -> list[Column]:
        """Return the columns of the row in column `record`; a retraction or delete may have none, only Kafka's key."""
        columns = {column.name: F.col(f"{record}.row.`{column.name}`") for column in schema.columns}
        if schema.keys:
            keys = _key_row(schema)
            decoded = self.decode_row(F.when(F.col(f"{record}.row").isNull() & F.col(record).isNotNull(), key), keys)
            columns |= {f.name: F.coalesce(columns[f.name], decoded.getField(f.name)) for f in keys.fields}
        return [column.alias(column_name) for column_name, column in columns.items()]

    def record(self, schema: RecordSchema) -> Column:
        """Return Kafka's `value` as struct(op, time, ingested, id, rev, row)."""
        decode = self._codec.recordDecoder(_row(schema).json(), schema.fingerprint)
        return call_java(decode, F.col("value"), F.col("partition"), F.col("offset"), F.col("number"))

    def encoded(self, schema: RecordSchema) -> tuple[Column, Column]:
        """Return Kafka's key (null without key columns) and value of rows with meta columns and those of `schema`."""
        encode = self._codec.recordEncoder(_row(schema).json(), schema.fingerprint)
        columns = F.struct(*(name(column.name) for column in schema.columns))
        value = call_java(encode, name(OP), name(TIME), name(INGESTED), name(ID), name(REV), columns)
        keys = _key_row(schema)
        key = self.encode_key(keys, [name(f.name) for f in keys.fields]) if schema.keys else F.lit(None).cast("binary")
        return key, value

    def encode_row(self, row: spark.StructType, columns: Iterable[Column]) -> Column:
        """Return the MessagePack array of `columns`, which have the types of `row`."""
        return call_java(self._codec.rowEncoder(row.json()), F.struct(*columns))

    def encode_key(self, row: spark.StructType, columns: Iterable[Column]) -> Column:
        """Return the Kafka key of `columns`, which have the types of `row`; equal values get equal bytes."""
        return call_java(self._codec.keyEncoder(row.json()), F.struct(*columns))

    def decode_row(self, column: Column, row: spark.StructType) -> Column:
        """Return the struct whose columns `encode_row` wrote into `column`."""
        return call_java(self._codec.rowDecoder(row.json()), column)


def _row(schema: RecordSchema) -> spark.StructType:
    return row_type((column.name, column.dtype) for column in schema.columns)


def _key_row(schema: RecordSchema) -> spark.StructType:
    return row_type((column.name, column.dtype) for column in schema.keys)
