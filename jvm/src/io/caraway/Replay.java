package io.caraway;

import java.io.Serializable;
import java.nio.ByteBuffer;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.function.Consumer;
import org.apache.spark.TaskContext;

/**
 * The records that arrive at an as-of join in its first batch after a restart, by join key.
 *
 * <p>In a failed attempt the records since the checkpoint may have arrived in another order. So a left row may have been joined with any right row
 * since then, or with the one at the checkpoint, and sent to the group or key in that row's columns. The join must retract the left row for each of
 * these matches, because no other step knows them (docs/decisions/0018-records-of-a-failed-attempt.md).
 */
final class Replay {
  /**
   * The records that a failed attempt may have read.
   *
   * @param batch the number of the first batch after the restart; negative if there was no restart
   * @param before the instant of the restart, in microseconds; the failed attempt can't have read records that were ingested later
   */
  record Scope(long batch, long before) implements Serializable {
    /** Returns a new replay if this task belongs to the first batch, otherwise null. */
    Replay begin() {
      TaskContext task = TaskContext.get();
      // Spark's driver prepares operators, too, but without a task and without rows.
      boolean first = batch >= 0 && task != null && Long.parseLong(task.getLocalProperty("streaming.sql.batchId")) == batch;
      return first ? new Replay(before) : null;
    }
  }

  // The most matches that are retracted for a row, since each costs a record. A row that more versions could have matched keeps a small risk
  // (docs/inside/records.md).
  private static final int MOST = 100;
  // The most retractions that are remembered, each in some 400 bytes: 20 MB for a task. One that is forgotten may be sent again, which costs time
  // only.
  private static final int MOST_REMEMBERED = 50_000;

  private final long before;
  private final Map<ByteBuffer, Arrivals> arrivals = new HashMap<>();
  // By the digest of what a retraction has beside its revision; those that were needed last come last.
  private final Map<ByteBuffer, Sent> sent = new LinkedHashMap<>(16, 0.75f, true) {
    @Override
    protected boolean removeEldestEntry(Map.Entry<ByteBuffer, Sent> eldest) {
      return size() > MOST_REMEMBERED;
    }
  };

  Replay(long before) {
    this.before = before;
  }

  /** The greatest revision of a retraction that has been sent, and the moment from which it is known. */
  private record Sent(byte[] rev, long ingested) {}

  /** Returns the SHA-256 of a record's identity, time and rows: what decides which way it takes, and where it ends. */
  private static ByteBuffer digest(AsOfState.Joined joined) {
    Version left = joined.left();
    byte[] right = joined.right();
    ByteBuffer lengths = ByteBuffer.allocate(Long.BYTES + 3 * Integer.BYTES)
        .putLong(left.time()).putInt(left.id().length).putInt(left.row().length).putInt(right == null ? -1 : right.length);
    try {
      MessageDigest digest = MessageDigest.getInstance("SHA-256");
      digest.update(lengths.array());
      digest.update(left.id());
      digest.update(left.row());
      if (right != null) {
        digest.update(right);
      }
      return ByteBuffer.wrap(digest.digest());
    } catch (NoSuchAlgorithmException e) {
      throw new IllegalStateException(e);
    }
  }

  /** A row of a left table, and the right row joined with it, null if there is none. */
  record Pair(Version left, byte[] right) {}

  Arrivals of(byte[] key) {
    ByteBuffer position = ByteBuffer.wrap(key);
    Arrivals known = arrivals.get(position);
    return known != null ? known : new Arrivals(position);
  }

  /** The records that have arrived for one join key. */
  final class Arrivals {
    private final ByteBuffer position;
    private final List<Version> rights = new ArrayList<>();
    private final Set<ByteBuffer> rightKeys = new HashSet<>();
    private final List<Version> lefts = new ArrayList<>();
    // The positions in time of replaced left rows of which the failed attempt may have read a revision.
    private final Set<ByteBuffer> leftKeys = new HashSet<>();
    private final Map<ByteBuffer, Events> tables = new HashMap<>();

    private Arrivals(ByteBuffer position) {
      this.position = position;
    }

    /**
     * Sends a retraction, unless it says nothing new: the join has sent one of the same row since the restart, with no smaller revision.
     *
     * <p>A join behind another one retracts all matches of a left row each time that it hears of the row again, so without this the retractions of
     * joins that follow each other multiply. Equal rows take the same way through later steps, to the same groups, where the earlier retraction has
     * done all that this one could do. A later join must have counted it among the records of the failed attempt, too, so those that became known
     * after the restart aren't remembered.
     */
    void retract(AsOfState.Joined retraction, Consumer<AsOfState.Joined> out) {
      long ingested = retraction.left().ingested();
      ByteBuffer content = digest(retraction);
      Sent known = sent.get(content);
      boolean newer = known == null || Arrays.compareUnsigned(retraction.rev(), known.rev) > 0;
      if (newer && ingested < before) {
        sent.put(content, new Sent(retraction.rev(), ingested));
      }
      if (newer || ingested < known.ingested) {
        out.accept(retraction);
      }
    }

    /** Returns whether the failed attempt may have read a record. */
    boolean mayBeOfFailedAttempt(Version version) {
      return version.ingested() < before;
    }

    /**
     * Notes a right row, and the row that it replaces. If the failed attempt can't have read the new row, only what stood in its place at the
     * checkpoint is noted: the replaced row, or none.
     */
    void right(AsOfState.Rule rule, Version replaced, Version row) {
      boolean failed = mayBeOfFailedAttempt(row);
      // Rows from after the restart keep coming for minutes. One with a later event time than the restart matches no row of the failed attempt.
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

    /** Notes a left row and the row that it replaces, and returns whether the failed attempt may have read any revision of the row. */
    boolean left(Version replaced, Version row) {
      boolean failed = mayBeOfFailedAttempt(row);
      if (replaced != null) {
        arrivals.put(position, this);
        lefts.add(replaced);
        // A revision depends on what an attempt has read, so the one that the failed attempt sent may be greater than several of this attempt. The
        // join must retract the other matches with all later revisions, too, even if these are known only since the restart.
        if (failed || mayBeOfFailedAttempt(replaced)) {
          leftKeys.add(ByteBuffer.wrap(row.key()));
        }
        failed = leftKeys.contains(ByteBuffer.wrap(row.key()));
      }
      if (row.op() == Version.RETRACT && mayBeOfFailedAttempt(row)) {
        arrivals.put(position, this);
        lefts.add(row);
      }
      return failed;
    }

    /** Returns left rows that stood, or may have stood, and have been replaced or retracted since. */
    List<Version> formerLefts() {
      return lefts;
    }

    /** Returns the right rows that a left row may have matched instead of {@code match}, with null for no match. */
    List<byte[]> otherMatches(AsOfState.Rule rule, Slice known, Version left, byte[] match) {
      byte[] end = Version.at(left.time() + rule.high() + 1);
      Version atCheckpoint = Version.before(known, end);
      while (atCheckpoint != null && rightKeys.contains(ByteBuffer.wrap(atCheckpoint.key()))) {
        atCheckpoint = Version.before(known, atCheckpoint.key());
      }
      List<byte[]> others = new ArrayList<>();
      Set<ByteBuffer> distinct = new HashSet<>();
      distinct.add(content(match));
      // For a row without a match a retraction without right columns was sent.
      add(others, distinct, null);
      add(others, distinct, AsOfState.match(rule, atCheckpoint, left.time()));
      for (Version right : rights) {
        if (others.size() < MOST && Arrays.compareUnsigned(right.key(), end) < 0) {
          add(others, distinct, AsOfState.match(rule, right, left.time()));
        }
      }
      return others;
    }

    /** Notes an event of a key of a left table, and the event that it replaces. */
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

    /** Returns the next event of a key of a left table that was known at the checkpoint, null if there is none. */
    Version keptAfter(byte[] table, Slice known, byte[] position) {
      Events events = tables.get(ByteBuffer.wrap(table));
      Version next = Version.after(known, position);
      while (next != null && isNew(events, next)) {
        next = Version.after(known, next.key());
      }
      return next;
    }

    /** Returns the pairs of rows, other than {@code pair}, of which the record of a left key at a right version may have been made. */
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

  /** The events that have arrived for one key of a left table: their positions in time, and rows that may have stood there. */
  private static final class Events {
    private final Set<ByteBuffer> positions = new HashSet<>();
    private final List<Version> rows = new ArrayList<>();

    private void add(Version version) {
      // Nothing was joined with a delete, or with a record without a row.
      if (version.op() != Version.DELETE && version.row().length > 0) {
        rows.add(version);
      }
    }
  }
}
