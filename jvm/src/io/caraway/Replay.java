package io.caraway;

import java.io.Serializable;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.TaskContext;

/**
 * What comes to an as-of join in its first batch after a restart, by join key.
 *
 * <p>In a run that a crash ended, the rows since the checkpoint may have come in another order. So a left row may have been joined with any
 * of the right rows since then, or with what was there at the checkpoint, and gone to the group or key that this names. Each of these places
 * must hear that it isn't there: nobody else knows of them (docs/decisions/0018-what-a-lost-run-has-said.md).
 */
final class Replay {
  /**
   * When to say again what a lost run may have said.
   *
   * @param batch number of the first batch after the restart; negative: there was none
   * @param before when it was, in microseconds: the lost run can't have read what was ingested later
   */
  record Scope(long batch, long before) implements Serializable {
    /** Begins to note what comes to this task, if that is in the first batch; else returns null. */
    Replay begin() {
      TaskContext task = TaskContext.get();
      // Spark's driver prepares operators, too, but no rows come to them there.
      boolean first = batch >= 0 && task != null && Long.parseLong(task.getLocalProperty("streaming.sql.batchId")) == batch;
      return first ? new Replay() : null;
    }
  }

  // Each is a record more for a left row. A right key may have had more versions in one batch, but that many matches of a row are not worth it.
  private static final int MOST = 100;

  private final Map<ByteBuffer, Arrivals> arrivals = new HashMap<>();

  Arrivals of(byte[] key) {
    ByteBuffer place = ByteBuffer.wrap(key);
    Arrivals known = arrivals.get(place);
    return known != null ? known : new Arrivals(place);
  }

  /** What has come to one join key. */
  final class Arrivals {
    private final ByteBuffer place;
    private final List<Version> rights = new ArrayList<>();
    private final Set<ByteBuffer> rightKeys = new HashSet<>();
    private final List<Version> lefts = new ArrayList<>();

    private Arrivals(ByteBuffer place) {
      this.place = place;
    }

    void right(Version replaced, Version row) {
      arrivals.put(place, this);
      rightKeys.add(ByteBuffer.wrap(row.key()));
      rights.add(row);
      if (replaced != null) {
        rights.add(replaced);
      }
    }

    void left(Version replaced, Version row) {
      if (replaced != null) {
        arrivals.put(place, this);
        lefts.add(replaced);
      }
      if (row.op() == Version.VOID) {
        arrivals.put(place, this);
        lefts.add(row);
      }
    }

    /** Returns rows that stood on the left side, or may have, and don't any more. */
    List<Version> formerLefts() {
      return lefts;
    }

    /** Returns what a left row may have matched instead of {@code match}: rows, and null for nothing. */
    List<byte[]> otherMatches(AsOfState.Rule rule, Slice known, Version left, byte[] match) {
      byte[] end = Version.at(left.time() + rule.high() + 1);
      Version atCheckpoint = Version.before(known, end);
      while (atCheckpoint != null && rightKeys.contains(ByteBuffer.wrap(atCheckpoint.key()))) {
        atCheckpoint = Version.before(known, atCheckpoint.key());
      }
      List<byte[]> others = new ArrayList<>();
      Set<ByteBuffer> distinct = new HashSet<>();
      distinct.add(content(match));
      // Where nothing matches, or isn't known to, a void is sent that has nothing of the right side.
      add(others, distinct, null);
      add(others, distinct, AsOfState.match(rule, atCheckpoint, left.time()));
      for (Version right : rights) {
        if (others.size() < MOST && Arrays.compareUnsigned(right.key(), end) < 0) {
          add(others, distinct, AsOfState.match(rule, right, left.time()));
        }
      }
      return others;
    }

    private static void add(List<byte[]> others, Set<ByteBuffer> distinct, byte[] match) {
      if (distinct.add(content(match))) {
        others.add(match);
      }
    }

    private static ByteBuffer content(byte[] match) {
      return match == null ? null : ByteBuffer.wrap(match);
    }
  }
}
