package io.caraway;

import java.io.Serializable;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.SpecializedGetters;
import org.apache.spark.sql.catalyst.expressions.objects.Invoke;
import org.apache.spark.sql.catalyst.util.ArrayBasedMapData;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.catalyst.util.GenericArrayData;
import org.apache.spark.sql.catalyst.util.MapData;
import org.apache.spark.sql.classic.ExpressionUtils;
import org.apache.spark.sql.types.AbstractDataType;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.BinaryType;
import org.apache.spark.sql.types.BooleanType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.LongType;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.ObjectType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;
import scala.collection.immutable.Seq;
import scala.collection.immutable.Vector$;
import scala.jdk.javaapi.CollectionConverters;

/**
 * The conversion of records and rows between MessagePack and Spark (docs/inside/records.md), as functions of columns.
 *
 * <p>Types are given as the JSON of a Spark struct of long, double, boolean, string, binary, and arrays, string maps and structs of these. All
 * functions are marked non-deterministic; otherwise Spark would evaluate a decoder once for each column that is taken out of its result.
 */
public final class RowCodec {
  // The number of the record format, and the items of a record's array (docs/inside/records.md).
  private static final int FORMAT = 1;
  private static final int ITEMS = 8;
  // The first byte of a block, which is an array of 16-bit length. The first byte of a record is another one.
  static final byte BLOCK = (byte) 0xdc;
  // The numbers of the items before and behind the records of a block.
  private static final int BEGIN = -1;
  private static final int END = -2;

  private RowCodec() {}

  /**
   * Returns the function (key, value, partition, offset) -> array of struct(value, number): the records of a message, with their numbers in it.
   *
   * <p>A message without a key may be a block of several records; any other message is one record with the number 0.
   *
   * @param withEnds whether the records of a block are between two items without a value, whose numbers are those of {@link #BEGIN} and {@link #END}
   */
  public static Function blockSplitter(boolean withEnds) {
    ArrayType records = new ArrayType(new StructType().add("value", "binary").add("number", "int", false), false);
    return new Function(new BlockSplitter(withEnds), "split", records);
  }

  /**
   * Returns the function (value, partition, offset, number) -> struct(op, time, ingested, id, rev, row).
   *
   * <p>A record without an identity gets its position in the topic as one. A record of another schema fails, since it would be misread.
   */
  public static Function recordDecoder(String rowType, long schema) {
    StructType type = (StructType) DataType.fromJson(rowType);
    StructType result = new StructType()
        .add("op", "int").add("time", "long").add("ingested", "long").add("id", "binary").add("rev", "binary").add("row", type);
    return new Function(new RecordDecoder(type, schema), "decode", result);
  }

  /** Returns the function (op, time, ingested, id, rev, row) -> value. */
  public static Function recordEncoder(String rowType, long schema) {
    return new Function(new RecordEncoder((StructType) DataType.fromJson(rowType), schema), "encode", DataTypes.BinaryType);
  }

  /** Returns the function bytes -> row, for bytes of {@link #rowEncoder}. */
  public static Function rowDecoder(String rowType) {
    StructType type = (StructType) DataType.fromJson(rowType);
    return new Function(new Rows(type), "decode", type);
  }

  /** Returns the function row -> MessagePack array of its columns, for payloads of operators. */
  public static Function rowEncoder(String rowType) {
    return new Function(new Rows((StructType) DataType.fromJson(rowType)), "encode", DataTypes.BinaryType);
  }

  /** Returns the function row -> Kafka key: the MessagePack array of its columns, with equal bytes for equal floats. */
  public static Function keyEncoder(String rowType) {
    return new Function(new Keys((StructType) DataType.fromJson(rowType)), "encode", DataTypes.BinaryType);
  }

  /**
   * A method of an object as a function of columns.
   *
   * <p>The method takes and returns Spark's internal rows. For a UDF Spark would convert all fields of each row to objects and back.
   */
  public record Function(Serializable target, String method, DataType result) {
    public Column apply(Seq<Column> columns) {
      // Java's streams are used because Scala's map and toSeq are inherited twice: javac takes one, Eclipse's compiler refuses to choose.
      Seq<Expression> arguments = seq(CollectionConverters.asJava(columns).stream().map(ExpressionUtils::expression).toList());
      Expression object = Literal.fromObject(target, new ObjectType(target.getClass()));
      Seq<AbstractDataType> anyTypes = seq(List.of());
      return ExpressionUtils.column(new Invoke(object, method, result, arguments, anyTypes, false, true, false));
    }

    private static <T> Seq<T> seq(List<T> list) {
      return Vector$.MODULE$.from(CollectionConverters.asScala(list));
    }
  }

  /** See {@link #blockSplitter}. This and the other records are public for the code that Spark generates. */
  public record BlockSplitter(boolean withEnds) implements Serializable {
    public ArrayData split(byte[] key, byte[] value, int partition, long offset) {
      if (key != null || value == null || value.length == 0 || value[0] != BLOCK) {
        return new GenericArrayData(new Object[] {new GenericInternalRow(new Object[] {value, 0})});
      }
      try {
        return new GenericArrayData(records(value));
      } catch (RuntimeException e) {
        throw new IllegalArgumentException("block at partition " + partition + ", offset " + offset + ": " + e, e);
      }
    }

    private Object[] records(byte[] block) {
      MessagePack.Reader in = new MessagePack.Reader(block);
      int count = in.array();
      int before = withEnds ? 1 : 0;
      Object[] records = new Object[count + 2 * before];
      if (withEnds) {
        records[0] = new GenericInternalRow(new Object[] {null, BEGIN});
        records[count + 1] = new GenericInternalRow(new Object[] {null, END});
      }
      for (int i = 0; i < count; i++) {
        int start = in.position();
        in.skip();
        records[before + i] = new GenericInternalRow(new Object[] {Arrays.copyOfRange(block, start, in.position()), i});
      }
      if (in.position() != block.length) {
        throw new IllegalArgumentException("it is longer than its records");
      }
      return records;
    }
  }

  /** See {@link #recordDecoder}. */
  public record RecordDecoder(StructType type, long schema) implements Serializable {
    public InternalRow decode(byte[] value, int partition, long offset, int number) {
      if (value == null) {
        return null;
      }
      try {
        return decodeRecord(value, position(partition, offset, number), type, schema);
      } catch (RuntimeException e) {
        String position = "partition " + partition + ", offset " + offset + (number > 0 ? ", number " + number : "");
        throw new IllegalArgumentException("record at " + position + ": " + e, e);
      }
    }
  }

  /** See {@link #recordEncoder}. */
  public record RecordEncoder(StructType type, long schema) implements Serializable {
    public byte[] encode(int op, long time, long ingested, byte[] id, byte[] rev, InternalRow row) {
      MessagePack.Writer out = new MessagePack.Writer();
      out.array(ITEMS);
      out.integer(FORMAT);
      out.integer(schema);
      out.integer(op);
      out.integer(time);
      out.integer(ingested);
      writeBinary(out, id);
      writeBinary(out, rev);
      writeRow(out, row, type);
      return out.toBytes();
    }
  }

  /** See {@link #rowDecoder} and {@link #rowEncoder}. */
  public record Rows(StructType type) implements Serializable {
    public InternalRow decode(byte[] bytes) {
      return bytes == null ? null : (InternalRow) read(new MessagePack.Reader(bytes), type);
    }

    public byte[] encode(InternalRow row) {
      if (row == null) {
        return null;
      }
      MessagePack.Writer out = new MessagePack.Writer();
      writeRow(out, row, type);
      return out.toBytes();
    }
  }

  /** See {@link #keyEncoder}. */
  public record Keys(StructType type) implements Serializable {
    public byte[] encode(InternalRow row) {
      if (row == null) {
        return null;
      }
      MessagePack.Writer out = new MessagePack.Writer(true);
      writeRow(out, row, type);
      return out.toBytes();
    }
  }

  private static InternalRow decodeRecord(byte[] value, byte[] position, StructType type, long schema) {
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
    byte[] id = in.nil() ? position : in.binary();
    byte[] rev = in.nil() ? new byte[0] : in.binary();
    return new GenericInternalRow(new Object[] {op, time, ingested, id, rev, read(in, type)});
  }

  /** Returns the identity of a source record, big-endian, so that identities in byte order are in the order of positions. */
  private static byte[] position(int partition, long offset, int number) {
    return ByteBuffer.allocate(12).putLong(offset).putInt(number << 16 | partition).array();
  }

  private static void writeBinary(MessagePack.Writer out, byte[] bytes) {
    if (bytes == null || bytes.length == 0) {
      out.nil();
    } else {
      out.binary(bytes);
    }
  }

  private static void writeRow(MessagePack.Writer out, InternalRow row, StructType type) {
    if (row == null) {
      out.nil();
      return;
    }
    StructField[] fields = type.fields();
    out.array(fields.length);
    for (int i = 0; i < fields.length; i++) {
      write(out, row, i, fields[i].dataType());
    }
  }

  private static void write(MessagePack.Writer out, SpecializedGetters values, int at, DataType type) {
    if (values.isNullAt(at)) {
      out.nil();
    } else if (type instanceof LongType) {
      out.integer(values.getLong(at));
    } else if (type instanceof DoubleType) {
      out.float64(values.getDouble(at));
    } else if (type instanceof StringType) {
      out.string(values.getUTF8String(at).getBytes());
    } else if (type instanceof BooleanType) {
      out.bool(values.getBoolean(at));
    } else if (type instanceof BinaryType) {
      out.binary(values.getBinary(at));
    } else if (type instanceof StructType struct) {
      writeRow(out, values.getStruct(at, struct.length()), struct);
    } else if (type instanceof ArrayType array) {
      ArrayData items = values.getArray(at);
      out.array(items.numElements());
      for (int i = 0; i < items.numElements(); i++) {
        write(out, items, i, array.elementType());
      }
    } else if (type instanceof MapType map) {
      MapData entries = values.getMap(at);
      // Keys are sorted by code point, as Python sorts text, so that equal maps become equal bytes.
      TreeMap<byte[], Integer> sorted = new TreeMap<>(Arrays::compareUnsigned);
      for (int i = 0; i < entries.numElements(); i++) {
        sorted.put(entries.keyArray().getUTF8String(i).getBytes(), i);
      }
      out.map(sorted.size());
      sorted.forEach((key, i) -> {
        out.string(key);
        write(out, entries.valueArray(), i, map.valueType());
      });
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
    } else if (type instanceof StructType struct) {
      StructField[] fields = struct.fields();
      int items = in.array();
      if (items != fields.length) {
        throw new IllegalArgumentException("row has " + items + " columns, its schema " + fields.length);
      }
      Object[] values = new Object[items];
      for (int i = 0; i < items; i++) {
        values[i] = read(in, fields[i].dataType());
      }
      return new GenericInternalRow(values);
    } else if (type instanceof ArrayType array) {
      Object[] values = new Object[in.array()];
      for (int i = 0; i < values.length; i++) {
        values[i] = read(in, array.elementType());
      }
      return new GenericArrayData(values);
    } else if (type instanceof MapType map) {
      // If two entries have one key, the last one counts.
      Map<Object, Object> values = new LinkedHashMap<>();
      int entries = in.map();
      for (int i = 0; i < entries; i++) {
        values.put(UTF8String.fromBytes(in.string()), read(in, map.valueType()));
      }
      return new ArrayBasedMapData(new GenericArrayData(values.keySet().toArray()), new GenericArrayData(values.values().toArray()));
    } else {
      throw new IllegalArgumentException("no decoding for " + type.simpleString());
    }
  }
}
