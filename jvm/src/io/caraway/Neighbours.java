package io.caraway;

import java.util.ArrayList;
import java.util.List;
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

/** {@link NeighbourState} as a Spark operator. Rows have side 0; those of other sides pass, for the joins further on. */
public final class Neighbours extends StatefulProcessor<Integer, Row, Row> {
  private final String operator;
  private final NeighbourState.Rule rule;
  private final long settleMs;
  private transient MapState<Long, byte[]> versions;

  private Neighbours(String operator, NeighbourState.Rule rule, long settleMs) {
    this.operator = operator;
    this.rule = rule;
    this.settleMs = settleMs;
  }

  /**
   * Follows the rows of {@code in} (side, key, op, time, ingested, id, rev, offset, row).
   *
   * @param operator a name that no other operator of this JVM has
   * @param kind name of a {@link NeighbourState.Kind}
   * @param window length of its buckets or of its gap, in microseconds
   * @param horizon how late a record may come and still be put between others, in microseconds
   * @param settleMs see {@link Frontier}
   * @return meta columns, side, key, row, which of the records that are made of one
   */
  public static Dataset<Row> apply(Dataset<Row> in, String operator, String kind, long window, long horizon, long settleMs) {
    NeighbourState.Rule rule = new NeighbourState.Rule(NeighbourState.Kind.valueOf(kind), window, horizon);
    return Operators.grouped(in)
        .transformWithState(
            new Neighbours(operator, rule, settleMs),
            TimeMode.None(),
            OutputMode.Update(),
            Encoders.row(Operators.passengers().add("which", "int")));
  }

  @Override
  public void init(OutputMode outputMode, TimeMode timeMode) {
    versions = Operators.pages(getHandle(), "versions");
  }

  @Override
  public Iterator<Row> handleInputRows(Integer bucket, Iterator<Row> rows, TimerValues timers) {
    Frontier frontier = Frontier.named(operator, settleMs);
    SortedPages pages = Operators.open(versions, NeighbourState.pruner(rule, frontier));
    List<Row> out = new ArrayList<>();
    while (rows.hasNext()) {
      Row row = rows.next();
      if (row.getInt(Operators.SIDE) == Operators.OWN) {
        Slice own = Slice.of(pages, row.getAs(Operators.KEY));
        new NeighbourState(rule, own, frontier).version(Operators.version(row), part -> out.add(row(part)));
      } else {
        out.add(Operators.passing(row, 1));
      }
    }
    pages.flush();
    return CollectionConverters.asScala(out.iterator());
  }

  private static Row row(NeighbourState.Part part) {
    Version made = part.version();
    byte[] payload = made.row().length == 0 ? null : made.row();
    return RowFactory.create(
        made.op(), made.time(), made.ingested(), made.id(), made.rev(), 0L, Operators.OWN, null, payload, part.which());
  }
}
