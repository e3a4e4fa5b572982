package io.caraway;

import java.util.Arrays;
import java.util.function.Consumer;

/** The as-of join of the rows of one join key (docs/revisions.md): both sides in order of time, and the output for each arrival. */
final class AsOfState {
  /**
   * The parameters of a join.
   *
   * @param horizon how late a record may come, in microseconds
   * @param low how much older than the left row a match may be, in microseconds; negative means without a limit
   * @param high how much younger than the left row a match may be, in microseconds
   * @param inner whether a left row without a match is left out
   * @param keyed whether the left rows are versions of a table; a delete among them is passed on whether or not anything matches
   */
  record Rule(long horizon, long low, long high, boolean inner, boolean keyed) implements java.io.Serializable {
    /** Returns the operation that is sent for a left row that an inner join leaves out. */
    int leftOut() {
      return keyed ? Version.DELETE : Version.RETRACT;
    }
  }

  /** An output record: the left one, and the right row that it matches, null if none. */
  record Joined(int op, Version left, byte[] rev, byte[] right) {}

  private final Rule rule;
  private final Slice lefts;
  private final Slice rights;
  private final MaxEventTime leftMaxEventTime;
  private final MaxEventTime rightMaxEventTime;
  private final Replay.Arrivals replayed;

  /** Creates the state of one join key; {@code replayed} has the records since a restart, null after the first batch. */
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
    // This state may know the retraction already, but a later step that groups by its columns may not ({@link Replay}).
    if (!isNew && (row.op() != Version.RETRACT || Version.isLeast(row.rev()))) {
      return;
    }
    boolean trim = isNew && lefts.put(key, row.encode());
    byte[] end = Version.at(row.time() + rule.high + 1);
    byte[] match = match(rule, Version.before(rights, end), row.time());
    long oldest = rule.low < 0 ? Long.MIN_VALUE : row.time() - rule.low;
    byte[] rev = row.revision(row.op() == Version.RETRACT ? 0 : settledAt(rights, end, oldest));
    // The failed attempt may have joined a row whose retraction arrived only after the restart, so for a retraction the other matches are retracted,
    // too.
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
      // The revision of a retraction depends on nothing in this state, since the retraction must not outweigh the same revision of the row under
      // another join key. The retraction has the columns of the joined row that it retracts, because later steps find that row's group by them.
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

  /** Processes a right row, and returns whether it was not known yet. */
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

  /** Retracts a right row's joins with left rows that have been replaced since the restart, because a failed attempt may have sent these joins. */
  private void takeBack(Version right, Consumer<Joined> out) {
    for (Version former : replayed.formerLefts()) {
      Version now = former.known(lefts);
      byte[] match = match(rule, right, former.time());
      if (match != null && now != null && right.time() <= former.time() + rule.high) {
        out.accept(new Joined(Version.RETRACT, former, now.revision(0), match));
      }
    }
  }

  /**
   * Returns the time before which no left row is needed. This time rises with the left side's event times as well as with the right side's; otherwise
   * a right table that rarely changes would keep all left rows for ever.
   */
  static long leftBound(Rule rule, MaxEventTime left, MaxEventTime right) {
    long margin = rule.horizon + rule.high;
    return Math.max(left.settledBefore(margin), right.settledBefore(margin));
  }

  /** Returns the time at which the oldest needed right version holds. */
  static long rightBound(Rule rule, MaxEventTime left) {
    return left.settledBefore(rule.horizon + rule.high);
  }

  /** Corrects the left rows that match the right side between {@code time} and the next version, where {@code now} replaces {@code old}. */
  private void correct(
      long time, long arrival, Version old, Version now, Version next, Consumer<Joined> out) {
    byte[] from = Version.at(time - rule.high);
    byte[] to = next == null ? null : Version.at(next.time() - rule.high);
    if (rule.low >= 0) {
      // Left rows that are too young for both versions match neither.
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
      // The record is sent even with the same match or none, so that its revision is that of an attempt in which the left row came later.
      if (after != null || !rule.inner) {
        out.accept(new Joined(left.op(), left, rev, after));
      } else if (before == null || rule.keyed) {
        out.accept(new Joined(rule.leftOut(), left, rev, null));
      }
    }
  }

  /**
   * Returns the arrival of the right record that settled the match of a left row, which is the last one that changed it; 0 if there is none.
   *
   * <p>It depends on the row and on the arrived right records, not on the arrival of the row, so the same match has the same number in a later
   * attempt, which mixes the two sides differently. It is the arrival of the match itself, or of a later version that has been retracted.
   *
   * @param end an exclusive bound of the match's position
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
