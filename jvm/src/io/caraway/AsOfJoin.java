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

/**
 * {@link AsOfState} as a Spark operator.
 *
 * <p>Left rows have side 0, right rows the number of this join. Rows of other sides pass: they are the right rows of joins further on, since
 * Spark's real-time mode takes no union behind a stateful operator.
 */
public final class AsOfJoin extends StatefulProcessor<byte[], Row, Row> {
  private final String operator;
  private final int number;
  private final AsOfState.Rule rule;
  private transient MapState<Long, byte[]> lefts;
  private transient MapState<Long, byte[]> rights;

  private AsOfJoin(String operator, int number, AsOfState.Rule rule) {
    this.operator = operator;
    this.number = number;
    this.rule = rule;
  }

  /**
   * Joins the rows of {@code in} (side, key, op, time, ingested, id, rev, offset, row).
   *
   * @param operator a name that no other operator of this JVM has
   * @param number the side of this join's right rows
   * @param horizon how late a record may come and still correct results, in microseconds
   * @param low how much older than the left row a match may be, in microseconds; negative: any
   * @param high how much younger, in microseconds
   * @return meta columns, side, key, row (the left one, or that of a row that passes), right row (null without a match)
   */
  public static Dataset<Row> apply(
      Dataset<Row> in, String operator, int number, long horizon, long low, long high, boolean inner) {
    return in.groupByKey((MapFunction<Row, byte[]>) row -> row.getAs(Operators.KEY), Encoders.BINARY())
        .transformWithState(
            new AsOfJoin(operator, number, new AsOfState.Rule(horizon, low, high, inner)),
            TimeMode.None(),
            OutputMode.Update(),
            Encoders.row(Operators.passengers().add("right", "binary")));
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
      int side = row.getInt(Operators.SIDE);
      if (side == Operators.OWN) {
        state.left(Operators.version(row), joined -> out.add(row(joined)));
      } else if (side == number) {
        state.right(Operators.version(row), row.getLong(Operators.OFFSET), joined -> out.add(row(joined)));
      } else {
        out.add(Operators.passing(row, 1));
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
        joined.op(), left.time(), left.ingested(), left.id(), joined.rev(), 0L, Operators.OWN, null, payload, joined.right());
  }
}
