package io.caraway;

import java.util.Arrays;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.streaming.MapState;
import org.apache.spark.sql.streaming.StatefulProcessorHandle;
import org.apache.spark.sql.streaming.TTLConfig;
import org.apache.spark.sql.types.StructType;

/** What the stateful operators share: the columns that they read and write, and their state. */
final class Operators {
  // Input columns: side, key, op, time, ingested, id, rev, offset, row.
  static final int SIDE = 0;
  static final int KEY = 1;
  static final int OFFSET = 7;

  // The side of the rows that an operator is about.
  static final int OWN = 0;

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

  /** Returns a row that an operator lets pass: meta columns, side, key, row, and further ones that are null. */
  static Row passing(Row row, int further) {
    Object[] values = {
      row.get(OP), row.get(TIME), row.get(INGESTED), row.get(ID), row.get(REV), row.get(OFFSET), row.get(SIDE), row.get(KEY),
      row.get(ROW)
    };
    return RowFactory.create(Arrays.copyOf(values, values.length + further));
  }

  /** Returns the schema of such a row without further columns. */
  static StructType passengers() {
    return meta().add("$side", "int").add("$key", "binary").add("row", "binary");
  }

  /** Returns the schema of the meta columns of an output. */
  static StructType meta() {
    return new StructType()
        .add("$op", "int").add("$time", "long").add("$ingested", "long").add("$id", "binary").add("$rev", "binary")
        .add("$offset", "long");
  }

  static MapState<Long, byte[]> pages(StatefulProcessorHandle handle, String name) {
    return handle.getMapState(name, Encoders.LONG(), Encoders.BINARY(), TTLConfig.NONE());
  }

  /** Opens the tree of the current key. */
  static SortedPages open(MapState<Long, byte[]> state) {
    return new SortedPages(new SortedPages.Store() {
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
    });
  }
}
