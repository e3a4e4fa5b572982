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

/** {@link AsOfState} as a Spark operator. Left rows have side 0, right rows side 1. */
public final class AsOfJoin extends StatefulProcessor<byte[], Row, Row> {
  private static final int LEFT = 0;

  private final String operator;
  private final AsOfState.Rule rule;
  private transient MapState<Long, byte[]> lefts;
  private transient MapState<Long, byte[]> rights;

  private AsOfJoin(String operator, AsOfState.Rule rule) {
    this.operator = operator;
    this.rule = rule;
  }

  /**
   * Joins the rows of {@code in} (side, key, op, time, ingested, id, rev, offset, row).
   *
   * @param operator a name that no other operator of this JVM has
   * @param horizon how late a record may come and still correct results, in microseconds
   * @param low how much older than the left row a match may be, in microseconds; negative: any
   * @param high how much younger, in microseconds
   * @return meta columns, left row, right row (null without a match)
   */
  public static Dataset<Row> apply(Dataset<Row> in, String operator, long horizon, long low, long high, boolean inner) {
    return in.groupByKey((MapFunction<Row, byte[]>) row -> row.getAs(Operators.KEY), Encoders.BINARY())
        .transformWithState(
            new AsOfJoin(operator, new AsOfState.Rule(horizon, low, high, inner)),
            TimeMode.None(),
            OutputMode.Update(),
            Encoders.row(Operators.meta().add("left", "binary").add("right", "binary")));
  }

  @Override
  public void init(OutputMode outputMode, TimeMode timeMode) {
    lefts = Operators.pages(getHandle(), "lefts");
    rights = Operators.pages(getHandle(), "rights");
  }

  @Override
  public Iterator<Row> handleInputRows(byte[] key, Iterator<Row> rows, TimerValues timers) {
    SortedPages left = Operators.open(lefts);
    SortedPages right = Operators.open(rights);
    AsOfState state =
        new AsOfState(rule, left, right, Frontier.named(operator + "/left"), Frontier.named(operator + "/right"));
    List<Row> out = new ArrayList<>();
    while (rows.hasNext()) {
      Row row = rows.next();
      if (row.getInt(Operators.SIDE) == LEFT) {
        state.left(Operators.version(row), joined -> out.add(row(joined)));
      } else {
        state.right(Operators.version(row), row.getLong(Operators.OFFSET), joined -> out.add(row(joined)));
      }
    }
    left.flush();
    right.flush();
    return CollectionConverters.asScala(out.iterator());
  }

  private static Row row(AsOfState.Joined joined) {
    Version left = joined.left();
    byte[] payload = left.row().length == 0 ? null : left.row();
    return RowFactory.create(
        joined.op(), left.time(), left.ingested(), left.id(), joined.rev(), 0L, payload, joined.right());
  }
}
