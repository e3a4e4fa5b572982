package io.caraway;

import java.util.ArrayDeque;
import java.util.Arrays;
import java.util.Deque;
import java.util.List;
import java.util.function.Consumer;

/** The as-of join of the rows of one join key (docs/inside/records.md): both sides in order of time, and the output for each arrival. */
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

  /** An output record: the left one, known from the moment of the output's latest cause, and the right row that it matches, null if none. */
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
    boolean trim = isNew && lefts.put(key, row.replacing(replaced).encode());
    Deque<Match> matches = matches(row);
    Match last = matches.getLast();
    // The failed attempt may have joined a row whose retraction arrived only after the restart, so for a retraction the other matches are retracted,
    // too.
    boolean retold = replayed != null && (replayed.left(replaced, row) || row.op() == Version.RETRACT);
    if (row.op() == Version.RETRACT) {
      // The revision of a retraction depends on nothing in this state, since the retraction must not outweigh the same revision of the row under
      // another join key. The retraction has the columns of the joined row that it retracts, because later steps find that row's group by them.
      boolean sent = replaced != null && replaced.op() != Version.RETRACT;
      takeBack(retold, row, row.revision(0), last.row, out);
      Joined retraction = new Joined(Version.RETRACT, row, row.revision(0), sent || retold ? last.row : null);
      if (replayed == null) {
        out.accept(retraction);
      } else {
        replayed.retract(retraction, out);
      }
    } else {
      Match before = null;
      for (Match match : matches) {
        Version left = row.knownFrom(match.known);
        byte[] rev = row.revision(match.settled);
        if (before != null && isSent(before.row) && !Arrays.equals(before.row, match.row)) {
          out.accept(new Joined(Version.RETRACT, left, rev, before.row));
        }
        // Without a match, an inner join's retraction is for what a failed attempt, or a former revision of the row, may have sent.
        if (isSent(match.row)) {
          out.accept(new Joined(match.row == null && rule.inner ? rule.leftOut() : row.op(), left, rev, match.row));
        } else if (match == last || replaced != null) {
          out.accept(new Joined(Version.RETRACT, left, rev, null));
        }
        // Retractions before the row would retract it in a later step until it comes, and give its adjacent rows new revisions ({@link TableState}).
        takeBack(retold && match == last, left, rev, match.row, out);
        before = match;
      }
    }
    leftMaxEventTime.advance(row.time());
    if (trim) {
      long bound = leftBound(rule, leftMaxEventTime, rightMaxEventTime);
      if (bound > Long.MIN_VALUE) {
        lefts.removeBelow(Version.at(bound));
      }
    }
  }

  /** Returns whether there is an output for a left row with this match. */
  private boolean isSent(byte[] match) {
    return match != null || !rule.inner || rule.keyed;
  }

  /** Retracts a left row with each other match that it may have had in a failed attempt. */
  private void takeBack(boolean retold, Version left, byte[] rev, byte[] match, Consumer<Joined> out) {
    if (retold) {
      for (byte[] other : replayed.otherMatches(rule, rights, left, match)) {
        replayed.retract(new Joined(Version.RETRACT, left, rev, other), out);
      }
    }
  }

  /** The right row that a left row matches from a moment of ingestion on, null if none, and the arrival that settled this. */
  private record Match(long known, byte[] row, long settled) {}

  /**
   * Returns the matches of a left row in the order in which they became known; the first one when the left row did.
   *
   * <p>The last match is that of all right rows. There are several if right rows were ingested after the left row, but have been read before it.
   */
  private Deque<Match> matches(Version left) {
    long oldest = rule.low < 0 ? Long.MIN_VALUE : left.time() - rule.low;
    Nearby nearby = Nearby.of(rights, Version.at(left.time() + rule.high + 1), false, left.ingested(), oldest, right -> true);
    Deque<Match> matches = new ArrayDeque<>(1);
    for (long moment : nearby.moments().descendingSet()) {
      List<Version> known = nearby.known(moment);
      Match match = new Match(moment, match(rule, Nearby.standing(known), left.time()), Nearby.settled(known));
      // A match that was settled by a later arrival than the next one can't be sent, since readers would keep it. Right rows of requests that were
      // answered at the same time may have such arrivals.
      if (!matches.isEmpty() && match.settled == matches.getFirst().settled) {
        matches.removeFirst();
        matches.addFirst(match);
      } else if (matches.isEmpty() || match.settled < matches.getFirst().settled) {
        matches.addFirst(match);
      }
    }
    return matches;
  }

  /** Processes a right row, and returns whether it was not known yet. */
  boolean right(Version row, long offset, Consumer<Joined> out) {
    byte[] key = row.key();
    Version replaced = row.known(rights);
    if (!row.replaces(replaced)) {
      return false;
    }
    boolean trim = rights.put(key, row.arrived(offset).replacing(replaced).encode());
    Version previous = Version.before(rights, key);
    Version old = replaced != null && replaced.op() != Version.RETRACT ? replaced : previous;
    if (replayed != null) {
      replayed.right(rule, replaced, row);
      if (replayed.mayBeOfFailedAttempt(row)) {
        takeBack(row, out);
      }
    }
    correct(row.arrived(offset), old, row.op() == Version.RETRACT ? previous : row, Version.after(rights, key), out);
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
        Version left = former.knownFrom(Math.max(now.ingested(), right.ingested()));
        replayed.retract(new Joined(Version.RETRACT, left, now.revision(0), match), out);
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

  /** Corrects the left rows that match the right side between {@code cause} and the next version, where {@code now} replaces {@code old}. */
  private void correct(Version cause, Version old, Version now, Version next, Consumer<Joined> out) {
    byte[] from = Version.at(cause.time() - rule.high);
    long known = now == null ? cause.ingested() : Math.max(cause.ingested(), now.ingested());
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
      if (before == null && after == null && tooOld(old, now, left.time())) {
        continue;
      }
      for (Version revision : left.revisions()) {
        if (known < revision.until(left) && revision.op() != Version.RETRACT) {
          correct(revision.knownFrom(known), revision.revision(cause.arrival()), before, after, out);
          if (left.op() == Version.RETRACT && isSent(after)) {
            // A later step that groups by the columns of the match has no retraction of this left row yet in the group of the new match.
            out.accept(new Joined(Version.RETRACT, left.knownFrom(known), left.revision(0), after));
          }
        }
      }
    }
  }

  private void correct(Version left, byte[] rev, byte[] before, byte[] after, Consumer<Joined> out) {
    boolean same = Arrays.equals(before, after);
    if (!same && isSent(before)) {
      out.accept(new Joined(Version.RETRACT, left, rev, before));
    }
    // The record is sent even with the same match or none, so that its revision is that of an attempt in which the left row came later.
    if (after != null || !rule.inner) {
      out.accept(new Joined(left.op(), left, rev, after));
    } else if (before == null || rule.keyed) {
      out.accept(new Joined(rule.leftOut(), left, rev, null));
    }
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
