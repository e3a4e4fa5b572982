package io.caraway;

import java.io.ByteArrayOutputStream;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.function.Consumer;

/**
 * The join of two tables at the times at which the right side changes (docs/revisions.md). {@link AsOfState} joins at the times at which the left
 * side changes.
 *
 * <p>Left records are made of versions by {@link AdjacentRowState.Kind#TABLE}: a put where a version begins and a delete where it ends, each under
 * the join key of its row. So the records under one join key say at which times a key of the left table had a row there, and which row.
 *
 * <p>An end moves back in time when a version in between arrives, so an end may be known in one attempt and never in the next. Therefore ends don't
 * count in ranks. A begin has the position of its end in its revision, which only grows, and it arrives after its end, so only begins cause output.
 */
final class TableState {
  // The first byte of a piece's identity, after those of ends (0) and begins (1).
  private static final int PIECE = 2;

  private final AsOfState.Rule rule;
  private final Slice tables;
  private final Slice rights;
  private final boolean fansOut;
  private final MaxEventTime leftMaxEventTime;
  private final Replay.Arrivals replayed;

  /**
   * Creates the state of one join key.
   *
   * @param fansOut whether left records are the copies of versions of {@link VersionFanOut}, not begins and ends
   * @param replayed the records of the join key since a restart, null after the first batch
   */
  TableState(
      AsOfState.Rule rule, Slice tables, Slice rights, boolean fansOut, MaxEventTime leftMaxEventTime, Replay.Arrivals replayed) {
    this.rule = rule;
    this.tables = tables;
    this.rights = rights;
    this.fansOut = fansOut;
    this.leftMaxEventTime = leftMaxEventTime;
    this.replayed = replayed;
  }

  /** Processes a begin or an end of a version of {@code table}, which is a key of the left side. */
  void left(byte[] table, Version event, Consumer<AsOfState.Joined> out) {
    Slice events = tables.of(table);
    Version replaced = event.known(events);
    boolean isNew = event.replaces(replaced);
    boolean isRetraction = event.op() == Version.RETRACT;
    if ((!isNew && (replayed == null || !isRetraction)) || (isRetraction && Version.isLeast(event.rev()))) {
      return;
    }
    boolean trim = isNew && events.put(event.key(), event.encode());
    if (replayed != null) {
      replayed.event(table, replaced, event);
    }
    byte[] begin = Version.at(event.time());
    byte[] end = positionOf(AdjacentRow.of(events, event.key(), true, this::begins).row());
    if (isNew && begins(event)) {
      for (SortedPages.Entry entry : rights.range(begin, end)) {
        Version right = Version.decode(entry);
        send(table, events, right, change(right), out);
      }
    }
    if (replayed != null && begins(event)) {
      // In a failed attempt the version may have held for longer, before the next one arrived.
      Version kept = replayed.keptAfter(table, events, event.key());
      byte[] from = isNew ? end : begin;
      if (from != null) {
        for (SortedPages.Entry entry : rights.range(from, positionOf(kept))) {
          Version right = Version.decode(entry);
          takeBack(table, events, right, piece(table, events, right, change(right)), out);
        }
      }
    }
    leftMaxEventTime.advance(event.time());
    long bound = AsOfState.rightBound(rule, leftMaxEventTime);
    if (trim && bound > Long.MIN_VALUE) {
      Version.trim(events, bound);
    }
  }

  /** Processes a version of the right side, which {@link AsOfState} has stored already: the output of each left key may change there. */
  void right(Version row, Consumer<AsOfState.Joined> out) {
    List<Version> touched = new ArrayList<>(standing(rights.range(Version.at(row.time()), row.key())));
    touched.add(row);
    // The next right version may begin a version of the output only because of this one, or not begin one any more.
    Version next = Version.after(rights, Version.at(row.time() + 1));
    if (next != null) {
      touched.addAll(standing(rights.range(Version.at(next.time()), Version.at(next.time() + 1))));
    }
    // These changes are the same for all left keys, of which there may be many, so they are computed once.
    List<RightChange> changes = touched.stream().map(this::change).toList();
    for (byte[] table : tables.furtherKeys()) {
      Slice events = tables.of(table);
      for (int i = 0; i < changes.size(); i++) {
        send(table, events, touched.get(i), changes.get(i), out);
      }
    }
  }

  private boolean begins(Version event) {
    return fansOut || AdjacentRowState.begins(event.id());
  }

  private static List<Version> standing(List<SortedPages.Entry> entries) {
    return entries.stream().map(Version::decode).filter(version -> version.op() != Version.RETRACT).toList();
  }

  /**
   * Sends the output for a left key from the time of a right version on.
   *
   * <p>The revision consists of that of the right version, the arrival that settled its position among the others, and the rank of the left key's
   * records up to that time. The rows of one left key replace each other under one identity, so that no row of a version that has ended since is
   * left.
   */
  private void send(byte[] table, Slice events, Version right, RightChange change, Consumer<AsOfState.Joined> out) {
    AsOfState.Joined piece = piece(table, events, right, change);
    if (piece != null) {
      takeBack(table, events, right, piece, out);
      out.accept(piece);
    }
  }

  /** Retracts the piece with each other pair of rows of which a failed attempt may have made it, for later steps that group by their columns. */
  private void takeBack(byte[] table, Slice events, Version right, AsOfState.Joined piece, Consumer<AsOfState.Joined> out) {
    if (replayed == null || piece == null) {
      return;
    }
    Version now = piece.left();
    for (Replay.Pair other : replayed.otherPairs(table, events, right, new Replay.Pair(now, piece.right()))) {
      Version was = new Version(Version.RETRACT, now.time(), other.left().ingested(), now.id(), now.rev(), other.left().row());
      out.accept(new AsOfState.Joined(Version.RETRACT, was, was.rev(), other.right()));
    }
  }

  /** Returns the piece of a left key: its output from the time of a right version on. It is null if the left key has no records up to then. */
  private AsOfState.Joined piece(byte[] table, Slice events, Version right, RightChange change) {
    boolean isRetraction = right.op() == Version.RETRACT;
    byte[] end = Version.at(right.time() + 1);
    Version left = Version.before(events, end);
    byte[] rank = AdjacentRow.of(events, end, false, this::begins).rank();
    if (rank.length == AdjacentRow.NOTHING.length) {
      return null;
    }
    ByteArrayOutputStream rev = new ByteArrayOutputStream();
    AdjacentRow.write(rev, right.rev(), 0);
    rev.write(isRetraction ? 0 : 1);
    rev.writeBytes(ByteBuffer.allocate(Long.BYTES).putLong(change.settled).array());
    rev.writeBytes(isRetraction ? AdjacentRow.NOTHING : rank);
    boolean stands = change.begins && left != null && left.op() == Version.PUT && left.time() < right.time();
    boolean matched = right.op() == Version.PUT;
    int op = !stands ? Version.RETRACT : matched || !rule.inner() ? Version.PUT : Version.DELETE;
    // A retraction also has the left and right row, by whose columns later operators find its key.
    Version of = left != null ? left : Version.decode(events.lower(end));
    Version piece = new Version(op, right.time(), of.ingested(), identity(table, right), rev.toByteArray(), of.row());
    return new AsOfState.Joined(op, piece, piece.rev(), right.joined());
  }

  /**
   * The effect of a right version on the output: {@code begins} is true if a version of the output begins with it, and
   * {@code settled} is the arrival of the last right record on which that depends.
   *
   * <p>No version of the output begins with a right version that another one replaces at its own time, nor with a delete
   * of a key without a row.
   */
  private record RightChange(boolean begins, long settled) {}

  private RightChange change(Version right) {
    if (right.op() == Version.RETRACT) {
      return new RightChange(false, 0);
    }
    byte[] time = Version.at(right.time());
    Version before = Version.before(rights, time);
    long settled = AsOfState.settledAt(rights, time, Long.MIN_VALUE);
    boolean replaced = false;
    for (SortedPages.Entry entry : rights.range(right.key(), Version.at(right.time() + 1))) {
      Version later = Version.decode(entry);
      if (Arrays.compareUnsigned(later.key(), right.key()) > 0) {
        settled = Math.max(settled, later.ingested());
        replaced |= later.op() != Version.RETRACT;
      }
    }
    boolean changes = right.op() == Version.PUT || (before != null && before.op() == Version.PUT);
    return new RightChange(changes && !replaced, settled);
  }

  /** Returns the least position at the time of a version; null, which means the end of time, for no version. */
  private static byte[] positionOf(Version version) {
    return version == null ? null : Version.at(version.time());
  }

  private static byte[] identity(byte[] table, Version right) {
    return ByteBuffer.allocate(1 + right.id().length + table.length).put((byte) PIECE).put(right.id()).put(table).array();
  }
}
