package io.caraway;

import java.io.Serializable;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import org.apache.spark.TaskContext;

/**
 * What comes to an as-of join in its first batch after a restart, by join key.
 *
 * <p>In a run that a crash ended, the rows since the checkpoint may have come in another order. So a left row may have been joined with any
 * of the right rows since then, or with what was there at the checkpoint, and gone to the group or key that this names. Each of these positions
 * must hear that it isn't there: nobody else knows of them (docs/decisions/0018-records-of-a-failed-attempt.md).
 */
final class Replay {
  /**
   * When to say again what a failed attempt may have said.
   *
   * @param batch number of the first batch after the restart; negative: there was none
   * @param before when it was, in microseconds: the failed attempt can't have read what was ingested later
   */
  record Scope(long batch, long before) implements Serializable {
    /** Begins to note what comes to this task, if that is in the first batch; else returns null. */
    Replay begin() {
      TaskContext task = TaskContext.get();
      // Spark's driver prepares operators, too, but no rows come to them there.
      boolean first = batch >= 0 && task != null && Long.parseLong(task.getLocalProperty("streaming.sql.batchId")) == batch;
      return first ? new Replay(before) : null;
    }
  }

  // Each is a record more for a left row. A right key may have had more versions in one batch, but that many matches of a row are not worth it.
  private static final int MOST = 100;

  private final long before;
  private final Map<ByteBuffer, Arrivals> arrivals = new HashMap<>();

  Replay(long before) {
    this.before = before;
  }

  /** A row of a left table, and that of a right one, null if none. */
  record Pair(Version left, byte[] right) {}

  Arrivals of(byte[] key) {
    ByteBuffer position = ByteBuffer.wrap(key);
    Arrivals known = arrivals.get(position);
    return known != null ? known : new Arrivals(position);
  }

  /** What has come to one join key. */
  final class Arrivals {
    private final ByteBuffer position;
    private final List<Version> rights = new ArrayList<>();
    private final Set<ByteBuffer> rightKeys = new HashSet<>();
    private final List<Version> lefts = new ArrayList<>();
    private final Map<ByteBuffer, Events> tables = new HashMap<>();

    private Arrivals(ByteBuffer position) {
      this.position = position;
    }

    /** Tells whether the failed attempt may have read a record. */
    boolean mayBeOfFailedAttempt(Version version) {
      return version.ingested() < before;
    }

    /** Notes a right row, and what it replaces. Of one that the failed attempt can't have read, only that it wasn't there at the checkpoint. */
    void right(AsOfState.Rule rule, Version replaced, Version row) {
      boolean failed = mayBeOfFailedAttempt(row);
      // Rows of after the restart come for minutes; one that is no older than it matches no row that may have been lost.
      if (failed || replaced != null || row.time() <= before + rule.high()) {
        arrivals.put(position, this);
        rightKeys.add(ByteBuffer.wrap(row.key()));
      }
      if (failed) {
        rights.add(row);
      }
      if (replaced != null) {
        rights.add(replaced);
      }
    }

    void left(Version replaced, Version row) {
      if (replaced != null) {
        arrivals.put(position, this);
        lefts.add(replaced);
      }
      if (row.op() == Version.RETRACT && mayBeOfFailedAttempt(row)) {
        arrivals.put(position, this);
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
      // Where nothing matches, or isn't known to, a retraction is sent that has nothing of the right side.
      add(others, distinct, null);
      add(others, distinct, AsOfState.match(rule, atCheckpoint, left.time()));
      for (Version right : rights) {
        if (others.size() < MOST && Arrays.compareUnsigned(right.key(), end) < 0) {
          add(others, distinct, AsOfState.match(rule, right, left.time()));
        }
      }
      return others;
    }

    /** Notes what has become known of a key of a left table, and what that replaces. */
    void event(byte[] table, Version replaced, Version event) {
      boolean failed = mayBeOfFailedAttempt(event);
      if (!failed && replaced == null) {
        return;
      }
      arrivals.put(position, this);
      Events events = tables.computeIfAbsent(ByteBuffer.wrap(table), key -> new Events());
      events.positions.add(ByteBuffer.wrap(event.key()));
      if (failed) {
        events.add(event);
      }
      if (replaced != null) {
        events.add(replaced);
      }
    }

    /** Returns the next event of a key of a left table that was there at the checkpoint, null if none. */
    Version keptAfter(byte[] table, Slice known, byte[] position) {
      Events events = tables.get(ByteBuffer.wrap(table));
      Version next = Version.after(known, position);
      while (next != null && isNew(events, next)) {
        next = Version.after(known, next.key());
      }
      return next;
    }

    /** Returns of what rows the piece of a left key at a right version may have been made, but for {@code pair}. */
    List<Pair> otherPairs(byte[] table, Slice known, Version right, Pair pair) {
      Events events = tables.get(ByteBuffer.wrap(table));
      List<Version> lefts = new ArrayList<>();
      Version atCheckpoint = Version.before(known, Version.at(right.time()));
      while (atCheckpoint != null && isNew(events, atCheckpoint)) {
        atCheckpoint = Version.before(known, atCheckpoint.key());
      }
      if (atCheckpoint != null && atCheckpoint.op() == Version.PUT) {
        lefts.add(atCheckpoint);
      }
      if (events != null) {
        events.rows.stream().filter(row -> row.time() < right.time()).forEach(lefts::add);
      }
      Set<ByteBuffer> rightRows = new LinkedHashSet<>();
      rightRows.add(content(right.joined()));
      if (rightKeys.contains(ByteBuffer.wrap(right.key()))) {
        rights.stream().filter(row -> Arrays.equals(row.key(), right.key())).forEach(row -> rightRows.add(content(row.joined())));
      }
      List<Pair> others = new ArrayList<>();
      Set<ByteBuffer> distinct = new HashSet<>();
      for (Version left : lefts) {
        if (distinct.add(content(left.row()))) {
          for (ByteBuffer rightRow : rightRows) {
            boolean same = Arrays.equals(left.row(), pair.left.row()) && Objects.equals(rightRow, content(pair.right));
            if (!same && others.size() < MOST) {
              others.add(new Pair(left, rightRow == null ? null : rightRow.array()));
            }
          }
        }
      }
      return others;
    }

    private boolean isNew(Events events, Version version) {
      return !mayBeOfFailedAttempt(version) || (events != null && events.positions.contains(ByteBuffer.wrap(version.key())));
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

  /** What has come of one key of a left table: positions in time, and rows that may have stood there. */
  private static final class Events {
    private final Set<ByteBuffer> positions = new HashSet<>();
    private final List<Version> rows = new ArrayList<>();

    private void add(Version version) {
      // Of a row that isn't here nothing was made.
      if (version.op() != Version.DELETE && version.row().length > 0) {
        rows.add(version);
      }
    }
  }
}
