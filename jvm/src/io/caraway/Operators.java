package io.caraway;

import static org.apache.spark.sql.functions.udf;

import io.caraway.shuffle.LocalReader;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Consumer;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.KeyValueGroupedDataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.api.java.UDF1;
import org.apache.spark.sql.streaming.MapState;
import org.apache.spark.sql.streaming.StatefulProcessorHandle;
import org.apache.spark.sql.streaming.TTLConfig;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import scala.collection.Iterator;
import scala.jdk.javaapi.CollectionConverters;

/** The columns that the stateful operators read and write, and the opening of their state. */
final class Operators {
  // Input columns: side, key, op, time, ingested, id, rev, offset, row.
  static final int SIDE = 0;
  static final int KEY = 1;
  static final int OFFSET = 7;
  // With fanned-out versions: the key of the next join.
  static final int JOINED = 9;
  // In a join of tables: the key of the left table, and whether the row is a fanned-out version.
  static final int TABLE = 9;
  static final int FAN_OUT = 10;

  // The side of the rows that an operator processes.
  static final int OWN = 0;
  // The side of rows without a record, which all steps let pass and no message has (`BEGIN` in `caraway.dataplane.streams.spark.codec`).
  private static final int NO_RECORD = Integer.MIN_VALUE + 1;

  private static final int OP = 2;
  private static final int TIME = 3;
  private static final int INGESTED = 4;
  private static final int ID = 5;
  private static final int REV = 6;
  private static final int ROW = 8;
  private static final byte[] NOTHING = {};

  private Operators() {}

  static Version version(Row row) {
    byte[] payload = row.getAs(ROW);
    byte[] rev = row.getAs(REV);
    return new Version(
        row.getInt(OP), row.getLong(TIME), row.getLong(INGESTED), row.getAs(ID), rev == null ? NOTHING : rev,
        payload == null ? NOTHING : payload);
  }

  /**
   * Returns the rows that an operator processes, in the order in which they became known, and passes the others on.
   *
   * <p>A micro-batch of a backfill has rows of all inputs in any order. A record that a later one corrects must be processed together with what was
   * known before the correction. Rows of one key of a right side stay in the order of their offsets.
   *
   * @param right the side of the rows that are processed beside {@link #OWN}
   */
  static List<Row> inOrder(Iterator<Row> rows, int right, Consumer<Row> pass) {
    record Known(Row row, long moment) {}
    List<Known> found = new ArrayList<>();
    Map<ByteBuffer, Long> reached = new HashMap<>();
    while (rows.hasNext()) {
      Row row = rows.next();
      int side = row.getInt(SIDE);
      if (side == OWN) {
        found.add(new Known(row, row.getLong(INGESTED)));
      } else if (side == right) {
        found.add(new Known(row, reached.merge(ByteBuffer.wrap(row.getAs(KEY)), row.getLong(INGESTED), Math::max)));
      } else {
        pass.accept(row);
      }
    }
    found.sort(Comparator.comparingLong(Known::moment));
    return found.stream().map(Known::row).toList();
  }

  /**
   * Returns the output of an operator for some rows.
   *
   * <p>If nothing was made of them, and a later step of the task holds records back ({@link Blocks}), it is a row without a record. Without that row the
   * task would wait for the next row here, and the records with it, however long no row comes.
   */
  static Iterator<Row> sent(List<Row> out, int further) {
    if (out.isEmpty() && LocalReader.holds()) {
      Object[] values = {Version.RETRACT, 0L, 0L, null, null, 0L, NO_RECORD, null, null};
      out.add(RowFactory.create(Arrays.copyOf(values, values.length + further)));
    }
    return CollectionConverters.asScala(out.iterator());
  }

  /** Returns a pass-through row: meta columns, side, key, row, and further columns that are null. */
  static Row passing(Row row, int further) {
    Object[] values = {
      row.get(OP), row.get(TIME), row.get(INGESTED), row.get(ID), row.get(REV), row.get(OFFSET), row.get(SIDE), row.get(KEY),
      row.get(ROW)
    };
    return RowFactory.create(Arrays.copyOf(values, values.length + further));
  }

  /** Returns the schema of a pass-through row without further columns. */
  static StructType passThrough() {
    return meta().add("$side", "int").add("$key", "binary").add("row", "binary");
  }

  /** Returns the schema of the meta columns of an output. */
  static StructType meta() {
    return new StructType()
        .add("$op", "int").add("$time", "long").add("$ingested", "long").add("$id", "binary").add("$rev", "binary")
        .add("$offset", "long");
  }

  /** Groups rows by the bucket of their key. */
  static KeyValueGroupedDataset<Integer, Row> grouped(Dataset<Row> in) {
    // Pass-through rows may have no key.
    UDF1<byte[], Integer> bucket = key -> key == null ? 0 : Slice.bucket(key);
    Dataset<Row> rows = in.withColumn("bucket", udf(bucket, DataTypes.IntegerType).apply(in.col("key")));
    // The rows are grouped by a column: with a function Spark would make two objects of each row, one of them only for the key.
    return rows.groupBy("bucket").as(Encoders.INT(), Encoders.row(rows.schema()));
  }

  /** Returns the trees in a map state. Spark gives access to the pages of the current bucket only. */
  static Trees trees(StatefulProcessorHandle handle, String name, SortedPages.Pruner pruner) {
    MapState<Long, byte[]> state = handle.getMapState(name, Encoders.LONG(), Encoders.BINARY(), TTLConfig.NONE());
    SortedPages.Store store = new SortedPages.Store() {
      @Override
      public byte[] get(long page) {
        return state.getValue(page);
      }

      @Override
      public void put(long page, byte[] bytes) {
        state.updateValue(page, bytes);
      }

      @Override
      public void remove(long page) {
        state.removeKey(page);
      }
    };
    return Trees.sharing(() -> new SortedPages(store, pruner));
  }
}
