package io.caraway;

import java.io.ByteArrayOutputStream;
import java.nio.ByteBuffer;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.TreeSet;
import java.util.function.Consumer;

/**
 * The join of two tables at the times at which the right side changes (docs/inside/records.md). {@link AsOfState} joins at the times at which the left
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
    boolean trim = isNew && events.put(event.key(), event.replacing(replaced).encode());
    if (replayed != null) {
      replayed.event(table, replaced, event);
    }
    byte[] begin = Version.at(event.time());
    byte[] end = positionOf(nextBegin(events, event.key(), Long.MAX_VALUE));
    if (isNew && begins(event)) {
      // A version that is known later ends this one only from then on.
      for (SortedPages.Entry entry : rights.range(begin, positionOf(nextBegin(events, event.key(), event.ingested())))) {
        Version right = Version.decode(entry);
        send(table, events, changes(right, event.ingested()), out);
      }
    }
    if (replayed != null && begins(event)) {
      // In a failed attempt the version may have held for longer, before the next one arrived.
      Version kept = replayed.keptAfter(table, events, event.key());
      byte[] from = isNew ? end : begin;
      if (from != null) {
        for (SortedPages.Entry entry : rights.range(from, positionOf(kept))) {
          Version right = Version.decode(entry);
          List<AsOfState.Joined> pieces = pieces(table, events, changes(right, event.ingested()));
          if (!pieces.isEmpty()) {
            takeBack(table, events, right, pieces.get(pieces.size() - 1), out);
          }
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
    // The next right version may begin a version of the output only because of this one, or not begin one any more. So may those behind it, as long
    // as it wasn't known.
    Nearby.of(rights, Version.at(row.time() + 1), true, row.ingested()).records().stream()
        .filter(next -> next.op() != Version.RETRACT).mapToLong(Version::time).distinct()
        .forEach(time -> touched.addAll(standing(rights.range(Version.at(time), Version.at(time + 1)))));
    // These changes are the same for all left keys, of which there may be many, so they are computed once.
    List<List<RightChange>> changes = touched.stream().map(right -> changes(right, row.ingested())).toList();
    for (byte[] table : tables.furtherKeys()) {
      Slice events = tables.of(table);
      changes.forEach(of -> send(table, events, of, out));
    }
  }

  /** Returns the next begin behind a position that hasn't been retracted at any moment since, or null. */
  private Version nextBegin(Slice events, byte[] position, long since) {
    return Nearby.of(events, position, true, since, Long.MIN_VALUE, this::begins).lasting();
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
  private void send(byte[] table, Slice events, List<RightChange> changes, Consumer<AsOfState.Joined> out) {
    List<AsOfState.Joined> pieces = pieces(table, events, changes);
    for (int i = 0; i < pieces.size(); i++) {
      out.accept(pieces.get(i));
      // The retractions follow the piece, whose revision they have. Before it they would retract it in a later step, if only until it comes, and
      // give its adjacent rows there new revisions, each with retractions of its own.
      if (i == pieces.size() - 1) {
        takeBack(table, events, changes.get(0).right, pieces.get(i), out);
      }
    }
  }

  /** Retracts the piece with each other pair of rows of which a failed attempt may have made it, for later steps that group by their columns. */
  private void takeBack(byte[] table, Slice events, Version right, AsOfState.Joined piece, Consumer<AsOfState.Joined> out) {
    if (replayed == null) {
      return;
    }
    Version now = piece.left();
    for (Replay.Pair other : replayed.otherPairs(table, events, right, new Replay.Pair(now, piece.right()))) {
      Version was = new Version(Version.RETRACT, now.time(), now.ingested(), now.id(), now.rev(), other.left().row());
      replayed.retract(new AsOfState.Joined(Version.RETRACT, was, was.rev(), other.right()), out);
    }
  }

  /**
   * Returns the pieces of a left key: its output from the time of a right version on, in the order in which it became known. There is none as long as
   * the left key has no records up to then.
   */
  private List<AsOfState.Joined> pieces(byte[] table, Slice events, List<RightChange> changes) {
    Version right = changes.get(0).right;
    Nearby nearby = Nearby.of(events, Version.at(right.time() + 1), false, changes.get(0).known, Long.MIN_VALUE, this::begins);
    TreeSet<Long> moments = nearby.moments();
    changes.forEach(change -> moments.add(change.known));
    ArrayDeque<AsOfState.Joined> pieces = new ArrayDeque<>(1);
    for (long moment : moments.descendingSet()) {
      AsOfState.Joined piece = piece(table, nearby, changes, moment);
      // Readers would keep a piece of a greater revision than the next one; arrivals of requests that were answered at the same time may be such.
      int order = piece == null ? 1 : pieces.isEmpty() ? -1 : Arrays.compareUnsigned(piece.rev(), pieces.getFirst().rev());
      if (order == 0) {
        pieces.removeFirst();
      }
      if (order <= 0) {
        pieces.addFirst(piece);
      }
    }
    return List.copyOf(pieces);
  }

  /** Returns the piece of a left key as it was known at a moment; null if the left key had no records up to the right version then. */
  private AsOfState.Joined piece(byte[] table, Nearby nearby, List<RightChange> changes, long moment) {
    RightChange change = changes.get(0);
    for (RightChange later : changes) {
      change = later.known <= moment ? later : change;
    }
    Version right = change.right;
    boolean isRetraction = right.op() == Version.RETRACT;
    List<Version> known = nearby.known(moment);
    if (known.isEmpty()) {
      return null;
    }
    ByteArrayOutputStream rev = new ByteArrayOutputStream();
    AdjacentRow.write(rev, right.rev(), 0);
    rev.write(isRetraction ? 0 : 1);
    rev.writeBytes(ByteBuffer.allocate(Long.BYTES).putLong(change.settled).array());
    rev.writeBytes(isRetraction ? AdjacentRow.NOTHING : AdjacentRow.of(known, false).rank());
    List<Version> events = nearby.known(moment, event -> true);
    Version left = Nearby.standing(events);
    boolean stands = change.begins && left != null && left.op() == Version.PUT && left.time() < right.time();
    boolean matched = right.op() == Version.PUT;
    int op = !stands ? Version.RETRACT : matched || !rule.inner() ? Version.PUT : Version.DELETE;
    // A retraction also has the left and right row, by whose columns later operators find its key.
    Version of = left != null ? left : events.get(0);
    Version piece = new Version(op, right.time(), moment, identity(table, right), rev.toByteArray(), of.row());
    return new AsOfState.Joined(op, piece, piece.rev(), right.joined());
  }

  /**
   * The effect of a right version on the output, from the moment {@code known} on: {@code begins} is true if a version of the output begins with it,
   * and {@code settled} is the arrival of the last right record on which that depends.
   *
   * <p>No version of the output begins with a right version that another one replaces at its own time, nor with a delete
   * of a key without a row.
   */
  private record RightChange(Version right, long known, boolean begins, long settled) {}

  /** Returns the effects of a right version as they were at a moment, or when it became known, and changed afterwards. */
  private List<RightChange> changes(Version right, long since) {
    long first = Math.max(right.ingested(), since);
    if (right.op() == Version.RETRACT) {
      return List.of(new RightChange(right, first, false, 0));
    }
    Nearby before = Nearby.of(rights, Version.at(right.time()), false, first);
    List<Version> same = rights.range(right.key(), Version.at(right.time() + 1)).stream()
        .map(Version::decode).filter(later -> Arrays.compareUnsigned(later.key(), right.key()) > 0).toList();
    TreeSet<Long> moments = before.moments();
    moments.add(first);
    same.forEach(later -> moments.add(Math.max(first, later.ingested())));
    List<RightChange> changes = new ArrayList<>();
    for (long moment : moments) {
      List<Version> known = before.known(moment);
      Version held = Nearby.standing(known);
      long settled = Nearby.settled(known);
      boolean replaced = false;
      for (Version later : same) {
        if (later.ingested() <= moment) {
          settled = Math.max(settled, later.arrival());
          replaced |= later.op() != Version.RETRACT;
        }
      }
      boolean changed = right.op() == Version.PUT || (held != null && held.op() == Version.PUT);
      changes.add(new RightChange(right, moment, changed && !replaced, settled));
    }
    return changes;
  }

  /** Returns the least position at the time of a version; null, which means the end of time, for no version. */
  private static byte[] positionOf(Version version) {
    return version == null ? null : Version.at(version.time());
  }

  private static byte[] identity(byte[] table, Version right) {
    return ByteBuffer.allocate(1 + right.id().length + table.length).put((byte) PIECE).put(right.id()).put(table).array();
  }
}
