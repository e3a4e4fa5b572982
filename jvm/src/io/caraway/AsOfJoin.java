package io.caraway;

import java.util.ArrayList;
import java.util.List;
import java.util.function.Consumer;
import java.util.function.LongSupplier;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.streaming.StatefulProcessor;
import org.apache.spark.sql.streaming.TimeMode;
import org.apache.spark.sql.streaming.TimerValues;
import scala.collection.Iterator;

/**
 * {@link AsOfState} as a Spark operator, with {@link TableState} if the left side is a table.
 *
 * <p>Left rows have side 0, right rows the number of this join. Rows of other sides pass through: they are for later steps, and are in the stream
 * from the start because Spark's real-time mode allows no union behind a stateful operator.
 */
public final class AsOfJoin extends StatefulProcessor<Integer, Row, Row> {
  private final String operator;
  private final int number;
  private final AsOfState.Rule rule;
  private final boolean fansOut;
  private final Replay.Scope failed;
  private final long settleMs;
  private transient MaxEventTime leftMaxEventTime;
  private transient MaxEventTime rightMaxEventTime;
  // This is null after the first batch after a restart, the only one with records that a failed attempt may have read.
  private transient Replay replay;
  private transient Trees lefts;
  private transient Trees rights;
  private transient Trees tables;

  private AsOfJoin(
      String operator, int number, AsOfState.Rule rule, boolean fansOut, Replay.Scope failed, long settleMs) {
    this.operator = operator;
    this.number = number;
    this.rule = rule;
    this.fansOut = fansOut;
    this.failed = failed;
    this.settleMs = settleMs;
  }

  /**
   * Joins the rows of {@code in} (side, key, op, time, ingested, id, rev, offset, row; if {@code keyed}, key of the left table and
   * whether it is fanned out).
   *
   * @param operator a name that no other operator of this JVM has
   * @param number the side of this join's right rows
   * @param horizon how late a record may come and still correct results, in microseconds
   * @param low how much older than the left row a match may be, in microseconds; negative means without a limit
   * @param high how much younger than the left row a match may be, in microseconds
   * @param keyed whether the left rows are begins and ends of the rows of a table
   * @param fansOut whether the versions of the left table come fanned out ({@link VersionFanOut}), not as begins and ends
   * @param batch see {@link Replay.Scope}; also negative if no later step groups rows by joined columns
   * @param before see {@link Replay.Scope}
   * @param settleMs see {@link MaxEventTime}
   * @return meta columns, side, key, row (the left one, or that of a row that passes), right row (null without a match)
   */
  public static Dataset<Row> apply(
      Dataset<Row> in, String operator, int number, long horizon, long low, long high, boolean inner, boolean keyed,
      boolean fansOut, long batch, long before, long settleMs) {
    Replay.Scope failed = new Replay.Scope(batch, before);
    return Operators.grouped(in)
        .transformWithState(
            new AsOfJoin(operator, number, new AsOfState.Rule(horizon, low, high, inner, keyed), fansOut, failed, settleMs),
            TimeMode.None(),
            OutputMode.Update(),
            Encoders.row(Operators.passThrough().add("right", "binary")));
  }

  @Override
  public void init(OutputMode outputMode, TimeMode timeMode) {
    leftMaxEventTime = MaxEventTime.named(operator + "/left", settleMs);
    rightMaxEventTime = MaxEventTime.named(operator + "/right", settleMs);
    LongSupplier leftBound = () -> AsOfState.leftBound(rule, leftMaxEventTime, rightMaxEventTime);
    LongSupplier rightBound = () -> AsOfState.rightBound(rule, leftMaxEventTime);
    // Checkpoints contain these names of the state, so they must not change.
    lefts = Operators.trees(getHandle(), "lefts", new Pruning(1, Pruning.Needed.NOTHING, leftBound));
    rights = Operators.trees(getHandle(), "rights", new Pruning(1, Pruning.Needed.HOLDING, rightBound));
    tables = rule.keyed() ? Operators.trees(getHandle(), "tables", new Pruning(2, Pruning.Needed.HOLDING, rightBound)) : null;
    replay = failed.begin();
  }

  @Override
  public Iterator<Row> handleInputRows(Integer bucket, Iterator<Row> rows, TimerValues timers) {
    SortedPages left = lefts.open(bucket);
    SortedPages right = rights.open(bucket);
    boolean keyed = rule.keyed();
    SortedPages table = keyed ? tables.open(bucket) : null;
    List<Row> out = new ArrayList<>();
    Consumer<AsOfState.Joined> sink = joined -> out.add(row(joined));
    for (Row row : Operators.inOrder(rows, number, passing -> out.add(Operators.passing(passing, 1)))) {
      int side = row.getInt(Operators.SIDE);
      byte[] key = row.getAs(Operators.KEY);
      Version version = Operators.version(row);
      Slice ownRights = Slice.of(right, key);
      Replay.Arrivals replayed = replay == null ? null : replay.of(key);
      AsOfState state = new AsOfState(rule, Slice.of(left, key), ownRights, leftMaxEventTime, rightMaxEventTime, replayed);
      TableState tableState = keyed ? new TableState(rule, Slice.of(table, key), ownRights, fansOut, leftMaxEventTime, replayed) : null;
      if (side == Operators.OWN) {
        boolean fannedOut = keyed && row.getBoolean(Operators.FAN_OUT);
        if (!keyed || (!fannedOut && AdjacentRowState.begins(version.id()))) {
          state.left(version, sink);
        }
        if (keyed && fannedOut == fansOut) {
          tableState.left(row.getAs(Operators.TABLE), version, sink);
        }
      } else if (state.right(version, row.getLong(Operators.OFFSET), sink) && keyed) {
        tableState.right(version, sink);
      }
    }
    lefts.flush(left);
    rights.flush(right);
    if (keyed) {
      tables.flush(table);
    }
    return Operators.sent(out, 1);
  }

  private static Row row(AsOfState.Joined joined) {
    Version left = joined.left();
    byte[] payload = left.row().length == 0 ? null : left.row();
    return RowFactory.create(
        joined.op(), left.time(), left.ingested(), left.id(), joined.rev(), 0L, Operators.OWN, null, payload, joined.right());
  }
}
