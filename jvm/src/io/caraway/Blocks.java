package io.caraway;

import io.caraway.shuffle.LocalReader;
import java.nio.ByteBuffer;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.NoSuchElementException;
import org.apache.spark.api.java.function.MapPartitionsFunction;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.types.StructType;

/**
 * The records of a job's output that leave together, as one Kafka message for each partition of the output (docs/inside/records.md).
 *
 * <p>Nothing waits for anything. In real-time mode these are the records that were made of one message of the input; or behind a shuffle, those of the
 * rows that were waiting there together. A micro-batch has all of its rows.
 */
public final class Blocks {
  // The kinds of rows: what passes as it is, a record that a block may have, and the ends of what is gathered.
  static final int OTHER = 0;
  static final int RECORD = 1;
  static final int BEGIN = 2;
  static final int END = 3;

  // The bounds of a block, as of those that a source writes (`caraway.dataplane.topics.blocks`).
  static final int MAX_RECORDS = 100;
  static final int MAX_BYTES = 128 * 1024;

  // The ways to gather: all that comes, what comes between BEGIN and END, and what is made before the task waits for a row.
  static final int BATCH = 0;
  static final int ENDS = 1;
  static final int READER = 2;

  private static final int HEAD = 3;
  private static final int KIND = 0;
  private static final int KEY = 1;
  private static final int VALUE = 2;
  private static final int PARTITION = 3;
  private static final int INGESTED = 4;
  private static final int IDENTITY = 5;

  private static final StructType TYPE =
      new StructType().add("kind", "int").add("key", "binary").add("value", "binary").add("partition", "int");

  private Blocks() {}

  /**
   * Returns the messages of a job.
   *
   * <p>Records without a key are placed by their identities: so the records of one identity are on one partition, in their order.
   *
   * @param rows kind, key, value, partition, ingestion time, and the identity of a record without a key
   * @param partitions the number of partitions of the output
   * @param way {@link #BATCH}, {@link #ENDS} or {@link #READER}; with {@link #ENDS} a block may have records of several ingestion times
   */
  public static Dataset<Row> gathered(Dataset<Row> rows, int partitions, int way) {
    MapPartitionsFunction<Row, Row> gather = some -> new Gathering(some, partitions, way);
    return rows.mapPartitions(gather, Encoders.row(TYPE));
  }

  /** Returns the partition to which Kafka's producer sends a key: by MurmurHash2 (Austin Appleby), which Kafka's documents name. */
  static int partitionOf(byte[] key, int partitions) {
    if (partitions == 1) {
      return 0;
    }
    final int m = 0x5bd1e995;
    int hash = 0x9747b28c ^ key.length;
    int at = 0;
    for (; at + 4 <= key.length; at += 4) {
      int k = (key[at] & 0xff) | (key[at + 1] & 0xff) << 8 | (key[at + 2] & 0xff) << 16 | (key[at + 3] & 0xff) << 24;
      k *= m;
      k ^= k >>> 24;
      hash = hash * m ^ k * m;
    }
    int left = 0;
    for (int i = key.length - 1; i >= at; i--) {
      left = left << 8 | key[i] & 0xff;
    }
    if (at < key.length) {
      hash = (hash ^ left) * m;
    }
    hash ^= hash >>> 13;
    hash *= m;
    hash ^= hash >>> 15;
    return (hash & 0x7fffffff) % partitions;
  }

  /** The records of one partition that wait for others. */
  private static final class Waiting {
    final List<Row> records = new ArrayList<>();
    int bytes;
  }

  private static final class Gathering implements Iterator<Row> {
    private final Iterator<Row> rows;
    private final int partitions;
    private final int way;
    private final ArrayDeque<Row> ready = new ArrayDeque<>();
    // By partition.
    private final Map<Integer, Waiting> waiting = new HashMap<>();
    private boolean gathers;
    // The number of records that wait.
    private int gathered;
    private long ingested = Long.MIN_VALUE;

    Gathering(Iterator<Row> rows, int partitions, int way) {
      this.rows = rows;
      this.partitions = partitions;
      this.way = way;
      this.gathers = way != ENDS;
    }

    @Override
    public boolean hasNext() {
      while (ready.isEmpty()) {
        if (way == READER && gathered > 0 && LocalReader.wouldWait()) {
          flush();
          continue;
        }
        LocalReader.holds(way == READER && gathered > 0);
        if (rows.hasNext()) {
          take(rows.next());
        } else {
          flush();
          return !ready.isEmpty();
        }
      }
      return true;
    }

    @Override
    public Row next() {
      if (!hasNext()) {
        throw new NoSuchElementException();
      }
      return ready.remove();
    }

    private void take(Row row) {
      switch (row.getInt(KIND)) {
        case BEGIN -> gathers = true;
        case END -> {
          flush();
          gathers = false;
        }
        case RECORD -> {
          if (gathers) {
            gather(row);
          } else {
            ready.add(alone(row));
          }
        }
        default -> {
          // A marker must not overtake the records before it.
          flush();
          ready.add(alone(row));
        }
      }
    }

    private void gather(Row row) {
      if (way != ENDS && row.getLong(INGESTED) != ingested) {
        flush();
        ingested = row.getLong(INGESTED);
      }
      int partition = partitionOf(row.getAs(row.isNullAt(KEY) ? IDENTITY : KEY), partitions);
      Waiting some = waiting.computeIfAbsent(partition, p -> new Waiting());
      int size = row.<byte[]>getAs(VALUE).length;
      if (some.records.size() == MAX_RECORDS || !some.records.isEmpty() && some.bytes + size > MAX_BYTES) {
        send(partition, some);
      }
      some.records.add(row);
      some.bytes += size;
      gathered++;
    }

    private void flush() {
      waiting.forEach(this::send);
    }

    /** Returns the message of one row. Kafka chooses the partition of a record with a key. */
    private Row alone(Row row) {
      Object partition = row.isNullAt(IDENTITY) ? row.get(PARTITION) : (Object) partitionOf(row.getAs(IDENTITY), partitions);
      return RowFactory.create(row.get(KIND), row.get(KEY), row.get(VALUE), partition);
    }

    private void send(Integer partition, Waiting some) {
      if (some.records.size() == 1) {
        ready.add(alone(some.records.get(0)));
      } else if (!some.records.isEmpty()) {
        ByteBuffer block = ByteBuffer.allocate(HEAD + some.bytes).put(RowCodec.BLOCK).putShort((short) some.records.size());
        some.records.forEach(record -> block.put(record.<byte[]>getAs(VALUE)));
        ready.add(RowFactory.create(RECORD, null, block.array(), partition));
      }
      gathered -= some.records.size();
      some.records.clear();
      some.bytes = 0;
    }
  }
}
