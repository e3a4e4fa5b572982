package io.caraway;

import static org.apache.spark.sql.functions.udf;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.TreeMap;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.api.java.UDF1;
import org.apache.spark.sql.api.java.UDF3;
import org.apache.spark.sql.api.java.UDF6;
import org.apache.spark.sql.expressions.UserDefinedFunction;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.BinaryType;
import org.apache.spark.sql.types.BooleanType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.LongType;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Records and rows between MessagePack and Spark (docs/records.md), as functions for columns.
 *
 * <p>Types come as the JSON of a Spark struct of long, double, boolean, string, binary, and arrays, string maps and structs of these. All
 * functions are marked non-deterministic: otherwise Spark would evaluate a decoder once for each column that is taken out of its result.
 */
public final class RowCodec {
  private static final int FORMAT = 1;
  private static final int ITEMS = 8;

  private RowCodec() {}

  /**
   * Returns (value, partition, offset) -> struct(op, time, ingested, id, rev, row).
   *
   * <p>The id is the position in the topic if the record has none. A record of another schema fails: reading on would misread it.
   */
  public static UserDefinedFunction recordDecoder(String rowType, long schema) {
    StructType type = (StructType) DataType.fromJson(rowType);
    StructType result = new StructType()
        .add("op", "int").add("time", "long").add("ingested", "long").add("id", "binary").add("rev", "binary").add("row", type);
    UDF3<byte[], Integer, Long, Row> decode = (value, partition, offset) -> {
      try {
        return decodeRecord(value, partition, offset, type, schema);
      } catch (RuntimeException e) {
        throw new IllegalArgumentException("record at partition " + partition + ", offset " + offset + ": " + e, e);
      }
    };
    return udf(decode, result).asNondeterministic();
  }

  /** Returns (op, time, ingested, id, rev, row) -> record. A null row stays null. */
  public static UserDefinedFunction recordEncoder(String rowType, long schema) {
    StructType type = (StructType) DataType.fromJson(rowType);
    UDF6<Integer, Long, Long, byte[], byte[], Row, byte[]> encode = (op, time, ingested, id, rev, row) -> {
      MessagePack.Writer out = new MessagePack.Writer();
      out.array(ITEMS);
      out.integer(FORMAT);
      out.integer(schema);
      out.integer(op);
      out.integer(time);
      out.integer(ingested);
      writeBinary(out, id);
      writeBinary(out, rev);
      write(out, row, type);
      return out.toBytes();
    };
    return udf(encode, DataTypes.BinaryType).asNondeterministic();
  }

  /** Returns bytes -> row, for what {@link #rowEncoder} wrote. */
  public static UserDefinedFunction rowDecoder(String rowType) {
    StructType type = (StructType) DataType.fromJson(rowType);
    UDF1<byte[], Row> decode = bytes -> bytes == null ? null : (Row) read(new MessagePack.Reader(bytes), type);
    return udf(decode, type).asNondeterministic();
  }

  /** Returns row -> MessagePack array of its columns: payloads of operators, and Kafka keys. */
  public static UserDefinedFunction rowEncoder(String rowType) {
    StructType type = (StructType) DataType.fromJson(rowType);
    UDF1<Row, byte[]> encode = row -> {
      if (row == null) {
        return null;
      }
      MessagePack.Writer out = new MessagePack.Writer();
      write(out, row, type);
      return out.toBytes();
    };
    return udf(encode, DataTypes.BinaryType).asNondeterministic();
  }

  private static Row decodeRecord(byte[] value, int partition, long offset, StructType type, long schema) {
    MessagePack.Reader in = new MessagePack.Reader(value);
    int items = in.array();
    long format = in.integer();
    if (items != ITEMS || format != FORMAT) {
      throw new IllegalArgumentException("unknown record format " + format + " with " + items + " items");
    }
    long found = in.integer();
    if (found != schema) {
      throw new IllegalArgumentException("record has schema " + found + ", this job reads schema " + schema);
    }
    int op = (int) in.integer();
    long time = in.integer();
    long ingested = in.integer();
    byte[] id = in.nil() ? position(partition, offset) : in.binary();
    byte[] rev = in.nil() ? new byte[0] : in.binary();
    return RowFactory.create(op, time, ingested, id, rev, read(in, type));
  }

  /** The identity of a source record. Big-endian, so that ids in byte order are positions in order. */
  private static byte[] position(int partition, long offset) {
    return ByteBuffer.allocate(12).putLong(offset).putInt(partition).array();
  }

  private static void writeBinary(MessagePack.Writer out, byte[] bytes) {
    if (bytes == null || bytes.length == 0) {
      out.nil();
    } else {
      out.binary(bytes);
    }
  }

  private static void write(MessagePack.Writer out, Object value, DataType type) {
    if (value == null) {
      out.nil();
    } else if (type instanceof LongType) {
      out.integer((Long) value);
    } else if (type instanceof DoubleType) {
      out.float64((Double) value);
    } else if (type instanceof StringType) {
      out.string(value.toString().getBytes(StandardCharsets.UTF_8));
    } else if (type instanceof BooleanType) {
      out.bool((Boolean) value);
    } else if (type instanceof BinaryType) {
      out.binary((byte[]) value);
    } else if (type instanceof StructType) {
      StructField[] fields = ((StructType) type).fields();
      out.array(fields.length);
      for (int i = 0; i < fields.length; i++) {
        write(out, ((Row) value).get(i), fields[i].dataType());
      }
    } else if (type instanceof ArrayType) {
      scala.collection.Seq<?> items = (scala.collection.Seq<?>) value;
      out.array(items.size());
      items.foreach(item -> {
        write(out, item, ((ArrayType) type).elementType());
        return null;
      });
    } else if (type instanceof MapType) {
      // Sorted by code point, as Python sorts text, so that equal maps are equal bytes.
      TreeMap<byte[], Object> sorted = new TreeMap<>(Arrays::compareUnsigned);
      ((scala.collection.Map<?, ?>) value).foreachEntry((key, item) -> sorted.put(key.toString().getBytes(StandardCharsets.UTF_8), item));
      out.map(sorted.size());
      for (Map.Entry<byte[], Object> entry : sorted.entrySet()) {
        out.string(entry.getKey());
        write(out, entry.getValue(), ((MapType) type).valueType());
      }
    } else {
      throw new IllegalArgumentException("no encoding for " + type.simpleString());
    }
  }

  private static Object read(MessagePack.Reader in, DataType type) {
    if (in.nil()) {
      return null;
    } else if (type instanceof LongType) {
      return in.integer();
    } else if (type instanceof DoubleType) {
      return in.float64();
    } else if (type instanceof StringType) {
      return UTF8String.fromBytes(in.string());
    } else if (type instanceof BooleanType) {
      return in.bool();
    } else if (type instanceof BinaryType) {
      return in.binary();
    } else if (type instanceof StructType) {
      StructField[] fields = ((StructType) type).fields();
      int items = in.array();
      if (items != fields.length) {
        throw new IllegalArgumentException("row has " + items + " columns, its schema " + fields.length);
      }
      Object[] values = new Object[items];
      for (int i = 0; i < items; i++) {
        values[i] = read(in, fields[i].dataType());
      }
      return RowFactory.create(values);
    } else if (type instanceof ArrayType) {
      Object[] values = new Object[in.array()];
      for (int i = 0; i < values.length; i++) {
        values[i] = read(in, ((ArrayType) type).elementType());
      }
      return values;
    } else if (type instanceof MapType) {
      int entries = in.map();
      Map<Object, Object> values = new HashMap<>();
      for (int i = 0; i < entries; i++) {
        Object key = UTF8String.fromBytes(in.string());
        values.put(key, read(in, ((MapType) type).valueType()));
      }
      return values;
    } else {
      throw new IllegalArgumentException("no decoding for " + type.simpleString());
    }
  }
}
