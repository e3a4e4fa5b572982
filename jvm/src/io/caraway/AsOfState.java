package io.caraway;

import java.util.Arrays;
import java.util.function.Consumer;

/** The as-of join of the rows of one join key (docs/revisions.md): both sides in order of time, and what follows from each arrival. */
final class AsOfState {
  /**
   * What to join.
   *
   * @param horizon how late a record may come, in microseconds
   * @param low how much older than the left row a match may be, in microseconds; negative: any
   * @param high how much younger, in microseconds
   * @param inner whether a left row without a match is left out
   * @param keyed whether the left rows are versions of a table: what ends there must end further on, whether or not anything matches
   */
  record Rule(long horizon, long low, long high, boolean inner, boolean keyed) implements java.io.Serializable {
    /** Returns what is sent for a left row that an inner join leaves out. */
    int leftOut() {
      return keyed ? Version.DELETE : Version.RETRACT;
    }
  }

  /** An output record: the left one with what it matches, {@code right} null if nothing. */
  record Joined(int op, Version left, byte[] rev, byte[] right) {}

  private final Rule rule;
  private final Slice lefts;
  private final Slice rights;
  private final MaxEventTime leftMaxEventTime;
  private final MaxEventTime rightMaxEventTime;
  private final Replay.Arrivals replayed;

  /** Makes the state of one join key; {@code replayed} is what has come to it since a restart, null when that is over. */
  AsOfState(
      Rule rule, Slice lefts, Slice rights, MaxEventTime leftMaxEventTime, MaxEventTime rightMaxEventTime, Replay.Arrivals replayed) {
    this.rule = rule;
    this.lefts = lefts;
    this.rights = rights;
    this.leftMaxEventTime = leftMaxEventTime;
    this.rightMaxEventTime = rightMaxEventTime;
    this.replayed = replayed;
  }

  void left(Version row, Consumer<Joined> out) {
    byte[] key = row.key();
    Version replaced = row.known(lefts);
    boolean isNew = row.replaces(replaced);
    // A retraction that is known here need not be known of further on, where its columns name a group ({@link Replay}).
    if (!isNew && (row.op() != Version.RETRACT || Version.isLeast(row.rev()))) {
      return;
    }
    boolean trim = isNew && lefts.put(key, row.encode());
    byte[] end = Version.at(row.time() + rule.high + 1);
    byte[] match = match(rule, Version.before(rights, end), row.time());
    long oldest = rule.low < 0 ? Long.MIN_VALUE : row.time() - rule.low;
    byte[] rev = row.revision(row.op() == Version.RETRACT ? 0 : settledAt(rights, end, oldest));
    // What takes a row back may be new: the row was there before.
    boolean retold = replayed != null && (replayed.mayBeOfFailedAttempt(row) || row.op() == Version.RETRACT);
    if (replayed != null) {
      replayed.left(replaced, row);
    }
    if (retold) {
      for (byte[] other : replayed.otherMatches(rule, rights, row, match)) {
        out.accept(new Joined(Version.RETRACT, row, rev, other));
      }
    }
    if (row.op() == Version.RETRACT) {
      // It depends on nothing here, and must not outweigh the same revision of the row under another join key. It bears the joined row
      // that it takes back: the columns of the match may tell where that is, further on.
      boolean sent = replaced != null && replaced.op() != Version.RETRACT;
      out.accept(new Joined(Version.RETRACT, row, rev, sent || retold ? match : null));
    } else {
      boolean absent = rule.inner && match == null;
      out.accept(new Joined(absent ? rule.leftOut() : row.op(), row, rev, match));
    }
    leftMaxEventTime.advance(row.time());
    if (trim) {
      long bound = leftBound(rule, leftMaxEventTime, rightMaxEventTime);
      if (bound > Long.MIN_VALUE) {
        lefts.removeBelow(Version.at(bound));
      }
    }
  }

  /** Takes a right row, and tells whether it was not known yet. */
  boolean right(Version row, long offset, Consumer<Joined> out) {
    byte[] key = row.key();
    Version replaced = row.known(rights);
    if (!row.replaces(replaced)) {
      return false;
    }
    boolean trim = rights.put(key, row.arrived(offset + 1).encode());
    Version previous = Version.before(rights, key);
    Version old = replaced != null && replaced.op() != Version.RETRACT ? replaced : previous;
    if (replayed != null) {
      replayed.right(rule, replaced, row);
      if (replayed.mayBeOfFailedAttempt(row)) {
        takeBack(row, out);
      }
    }
    correct(row.time(), offset + 1, old, row.op() == Version.RETRACT ? previous : row, Version.after(rights, key), out);
    rightMaxEventTime.advance(row.time());
    if (trim) {
      long bound = rightBound(rule, leftMaxEventTime);
      if (bound > Long.MIN_VALUE) {
        Version.trim(rights, bound);
      }
    }
    return true;
  }

  /** Says of the left rows that were there for a moment that they aren't joined with a right one: they may have been, before the restart. */
  private void takeBack(Version right, Consumer<Joined> out) {
    for (Version former : replayed.formerLefts()) {
      Version now = former.known(lefts);
      byte[] match = match(rule, right, former.time());
      if (match != null && now != null && right.time() <= former.time() + rule.high) {
        out.accept(new Joined(Version.RETRACT, former, now.revision(0), match));
      }
    }
  }

  /** Returns the time before which no left row is needed. A table that rarely changes must not keep all rows of a stream for ever. */
  static long leftBound(Rule rule, MaxEventTime left, MaxEventTime right) {
    long margin = rule.horizon + rule.high;
    return Math.max(left.settledBefore(margin), right.settledBefore(margin));
  }

  /** Returns the time at which the oldest right version that is needed holds. */
  static long rightBound(Rule rule, MaxEventTime left) {
    return left.settledBefore(rule.horizon + rule.high);
  }

  /** Corrects the left rows that see the right side from {@code time} to the next version: {@code old} gives way to {@code now}. */
  private void correct(
      long time, long arrival, Version old, Version now, Version next, Consumer<Joined> out) {
    byte[] from = Version.at(time - rule.high);
    byte[] to = next == null ? null : Version.at(next.time() - rule.high);
    if (rule.low >= 0) {
      // Rows that are too young for both are not touched.
      long youngest = Math.max(old == null ? Long.MIN_VALUE : old.time(), now == null ? Long.MIN_VALUE : now.time());
      byte[] end = youngest == Long.MIN_VALUE ? from : Version.at(youngest + rule.low + 1);
      to = to == null || Arrays.compareUnsigned(end, to) < 0 ? end : to;
    }
    for (SortedPages.Entry entry : lefts.range(from, to)) {
      Version left = Version.decode(entry);
      byte[] before = match(rule, old, left.time());
      byte[] after = match(rule, now, left.time());
      if (left.op() == Version.RETRACT || (before == null && after == null && tooOld(old, now, left.time()))) {
        continue;
      }
      byte[] rev = left.revision(arrival);
      boolean same = Arrays.equals(before, after);
      if (!same && (before != null || !rule.inner || rule.keyed)) {
        out.accept(new Joined(Version.RETRACT, left, rev, before));
      }
      // With the same content too, and with none: the revision is that of a run in which the left row came later.
      if (after != null || !rule.inner) {
        out.accept(new Joined(left.op(), left, rev, after));
      } else if (before == null || rule.keyed) {
        out.accept(new Joined(rule.leftOut(), left, rev, null));
      }
    }
  }

  /**
   * Returns when the match of a left row was settled: the arrival of the last right record that changed it, 0 if none has.
   *
   * <p>It depends on the row and on what has arrived of the right side, not on when the row came: in a run after a crash, which mixes both
   * sides otherwise, the same match has the same number. That is the match's own arrival, or that of a later version which is retracted since.
   *
   * @param end above the position of the match
   * @param oldest the least time that a match may have
   */
  static long settledAt(Slice rights, byte[] end, long oldest) {
    long settled = 0;
    Version found = Version.decode(rights.lower(end));
    while (found != null && found.time() >= oldest) {
      settled = Math.max(settled, found.ingested());
      if (found.op() != Version.RETRACT) {
        break;
      }
      found = Version.decode(rights.lower(found.key()));
    }
    return settled;
  }

  private boolean tooOld(Version old, Version now, long time) {
    return rule.low >= 0 && (old == null || old.time() < time - rule.low) && (now == null || now.time() < time - rule.low);
  }

  /** Returns the row of a right version, if a left row of this time may match it and it isn't a delete. */
  static byte[] match(Rule rule, Version candidate, long time) {
    boolean holds = candidate != null && candidate.op() == Version.PUT && (rule.low < 0 || candidate.time() >= time - rule.low);
    return holds ? candidate.row() : null;
  }
}
