package io.caraway;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.api.java.function.MapFunction;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.streaming.MapState;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.streaming.StatefulProcessor;
import org.apache.spark.sql.streaming.TimeMode;
import org.apache.spark.sql.streaming.TimerValues;
import scala.collection.Iterator;
import scala.jdk.javaapi.CollectionConverters;

/** {@link ChangelogState} as a Spark operator. */
public final class KeyedChangelog extends StatefulProcessor<byte[], Row, Row> {
  private final String operator;
  private final long horizon;
  private transient MapState<Long, byte[]> versions;

  private KeyedChangelog(String operator, long horizon) {
    this.operator = operator;
    this.horizon = horizon;
  }

  /**
   * Turns the versions in {@code in} (side, key, op, time, ingested, id, rev, offset, row) into contributions.
   *
   * @param operator a name that no other operator of this JVM has
   * @param horizon how late a version may come and still be put between others, in microseconds
   * @return meta columns and row
   */
  public static Dataset<Row> apply(Dataset<Row> in, String operator, long horizon) {
    return in.groupByKey((MapFunction<Row, byte[]>) row -> row.getAs(Operators.KEY), Encoders.BINARY())
        .transformWithState(
            new KeyedChangelog(operator, horizon),
            TimeMode.None(),
            OutputMode.Update(),
            Encoders.row(Operators.meta().add("row", "binary")));
  }

  @Override
  public void init(OutputMode outputMode, TimeMode timeMode) {
    versions = Operators.pages(getHandle(), "versions");
  }

  @Override
  public Iterator<Row> handleInputRows(byte[] key, Iterator<Row> rows, TimerValues timers) {
    SortedPages pages = Operators.open(versions);
    ChangelogState state = new ChangelogState(horizon, pages, Frontier.named(operator));
    List<Row> out = new ArrayList<>();
    while (rows.hasNext()) {
      Row row = rows.next();
      state.version(Operators.version(row), row.getLong(Operators.OFFSET), part -> out.add(row(part)));
    }
    pages.flush();
    return CollectionConverters.asScala(out.iterator());
  }

  private static Row row(Version part) {
    byte[] payload = part.row().length == 0 ? null : part.row();
    return RowFactory.create(part.op(), part.time(), part.ingested(), part.id(), part.rev(), 0L, payload);
  }
}
