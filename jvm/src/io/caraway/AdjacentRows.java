package io.caraway;

import java.util.ArrayList;
import java.util.List;
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
 * {@link AdjacentRowState} as a Spark operator, with {@link VersionFanOut} for tables that are joined and whose versions may be revised.
 *
 * <p>The operator processes rows of side 0; rows of other sides pass through, for later steps.
 */
public final class AdjacentRows extends StatefulProcessor<Integer, Row, Row> {
  private final String operator;
  private final AdjacentRowState.Rule rule;
  private final boolean fansOut;
  private final long settleMs;
  private transient MaxEventTime maxEventTime;
  private transient Trees versions;
  private transient Trees stands;

  private AdjacentRows(String operator, AdjacentRowState.Rule rule, boolean fansOut, long settleMs) {
    this.operator = operator;
    this.rule = rule;
    this.fansOut = fansOut;
    this.settleMs = settleMs;
  }

  /**
   * Applies the operator to the rows of {@code in}: side, key, op, time, ingested, id, rev, offset, row; and the key of the next join, if versions
   * fan out.
   *
   * @param operator a name that no other operator of this JVM has
   * @param kind the name of an {@link AdjacentRowState.Kind}
   * @param window the length of its buckets or of its gap, in microseconds
   * @param horizon how late a record may come and still be put between others, in microseconds
   * @param fansOut whether join keys receive all versions, which are sent with {@link AdjacentRowState#FAN_OUT}
   * @param settleMs see {@link MaxEventTime}
   * @return meta columns, side, key, row, the number of the output ({@link AdjacentRowState.Part}), the join key that receives it (of fanned-out
   * versions only)
   */
  public static Dataset<Row> apply(
      Dataset<Row> in, String operator, String kind, long window, long horizon, boolean fansOut, long settleMs) {
    AdjacentRowState.Rule rule = new AdjacentRowState.Rule(AdjacentRowState.Kind.valueOf(kind), window, horizon);
    return Operators.grouped(in)
        .transformWithState(
            new AdjacentRows(operator, rule, fansOut, settleMs),
            TimeMode.None(),
            OutputMode.Update(),
            Encoders.row(Operators.passThrough().add("which", "int").add("to", "binary")));
  }

  @Override
  public void init(OutputMode outputMode, TimeMode timeMode) {
    maxEventTime = MaxEventTime.named(operator, settleMs);
    // Checkpoints contain these names of the state, so they must not change.
    versions = Operators.trees(getHandle(), "versions", AdjacentRowState.pruner(rule, maxEventTime));
    stands = fansOut ? Operators.trees(getHandle(), "stands", VersionFanOut.pruner(rule.horizon(), maxEventTime)) : null;
  }

  @Override
  public Iterator<Row> handleInputRows(Integer bucket, Iterator<Row> rows, TimerValues timers) {
    SortedPages pages = versions.open(bucket);
    SortedPages standing = fansOut ? stands.open(bucket) : null;
    List<Row> out = new ArrayList<>();
    for (Row row : Operators.inOrder(rows, Operators.OWN, passing -> out.add(Operators.passing(passing, 2)))) {
      byte[] key = row.getAs(Operators.KEY);
      Slice own = Slice.of(pages, key);
      Version version = Operators.version(row);
      boolean isNew = new AdjacentRowState(rule, own, maxEventTime).version(version, part -> {
        // Join keys that receive all versions need no ends: the next version ends the one before.
        if (!fansOut || part.which() == AdjacentRowState.BEGIN) {
          out.add(row(part.which(), part.version(), null));
        }
      });
      if (fansOut) {
        VersionFanOut fanOut = new VersionFanOut(own, Slice.of(standing, key));
        fanOut.version(version, row.getAs(Operators.JOINED), isNew, one -> out.add(row(AdjacentRowState.FAN_OUT, one.version(), one.joinKey())));
      }
    }
    versions.flush(pages);
    if (fansOut) {
      stands.flush(standing);
    }
    return Operators.sent(out, 2);
  }

  private static Row row(int which, Version made, byte[] to) {
    byte[] payload = made.row().length == 0 ? null : made.row();
    return RowFactory.create(
        made.op(), made.time(), made.ingested(), made.id(), made.rev(), 0L, Operators.OWN, null, payload, which, to);
  }
}
