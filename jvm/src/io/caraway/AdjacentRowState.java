package io.caraway;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.function.Consumer;

/**
 * The state of the operators whose output for a record depends on the adjacent record of its key in event time (docs/inside/records.md): changes of a
 * table, dedup, first.
 *
 * <p>A record that arrives can change the output for itself, and for the record whose adjacent row it is; nothing else.
 */
final class AdjacentRowState {
  /** The output for a record and its adjacent row. */
  enum Kind {
    /** An aggregate input at the record's time, and its end at the time of the next. */
    AGGREGATE_INPUTS,
    /** An event at the record's time, and another one at the time of the next; nothing if both times are the same. */
    CHANGES,
    /** The record, also if it is a delete, and its end at the time of the next; nothing if both times are the same. */
    TABLE,
    /** The record, if the next one is of another time. */
    INSTANT,
    /** The record, if the next one is in another bucket. */
    TUMBLING,
    /** The record, if the next one is no less than the gap away. */
    SESSION,
    /** The record, if there is none before it. */
    FIRST;

    /** Returns whether two output records are made of one input record. */
    boolean twofold() {
      return this == AGGREGATE_INPUTS || this == CHANGES || this == TABLE;
    }
  }

  /**
   * The output to make, with its times.
   *
   * @param window length of the buckets or of the gap, in microseconds
   * @param horizon how late a record may come and still be put between others, in microseconds
   */
  record Rule(Kind kind, long window, long horizon) implements java.io.Serializable {
    boolean forward() {
      return kind != Kind.FIRST;
    }
  }

  static final int BEGIN = 0;
  static final int END = 1;
  /** The number of a version as it arrived, of which {@link VersionFanOut} sends copies to join keys. */
  static final int FAN_OUT = 2;

  private static final byte TABLE_ENDS = 0;
  private static final byte TABLE_BEGINS = 1;

  private final Rule rule;
  private final Slice versions;
  private final MaxEventTime maxEventTime;

  /** An output record, and its number among the outputs of one record: {@link #BEGIN}, {@link #END} or {@link #FAN_OUT}. */
  record Part(int which, Version version) {}

  AdjacentRowState(Rule rule, Slice versions, MaxEventTime maxEventTime) {
    this.rule = rule;
    this.versions = versions;
    this.maxEventTime = maxEventTime;
  }

  /** Processes a record, and returns whether it was not known yet. */
  boolean version(Version version, Consumer<Part> out) {
    byte[] key = version.key();
    Version replaced = version.known(versions);
    // If a record's least revision is a retraction, the record was never sent as a row in any attempt, so there is nothing to retract.
    if (version.op() == Version.RETRACT && Version.isLeast(version.rev())) {
      return false;
    }
    if (!version.replaces(replaced)) {
      if (version.op() == Version.RETRACT) {
        // This state knows the retraction already, but a later step that groups by its columns may not ({@link Replay}).
        parts(version, AdjacentRow.NONE, version.ingested()).forEach(out);
      }
      return false;
    }
    long known = version.ingested();
    List<Version> others = others(key, known);
    List<State> ownBefore = states(replaced, known);
    List<List<State>> othersBefore = others.stream().map(other -> states(other, known)).toList();
    boolean trim = versions.put(key, version.replacing(replaced).encode());
    List<State> own = states(version, known);
    if (own.get(0).known > known && rule.kind != Kind.AGGREGATE_INPUTS) {
      // The output as it was at first isn't kept, and what is sent instead is known from a later moment on, which may be after a restart. The
      // retraction shows a later join that a failed attempt may have read the record ({@link Replay}).
      parts(version.retracted(), AdjacentRow.NONE, known).forEach(out);
    }
    sendAll(ownBefore, own, replaced != null && replaced.op() == Version.PUT, out);
    for (int i = 0; i < others.size(); i++) {
      sendAll(othersBefore.get(i), states(others.get(i), known), true, out);
    }
    maxEventTime.advance(version.time());
    long bound = maxEventTime.settledBefore(rule.horizon);
    if (trim && bound > Long.MIN_VALUE) {
      trim(bound);
    }
    return true;
  }

  /** Returns whether an identity of {@link Kind#TABLE} is that of a begin. */
  static boolean begins(byte[] id) {
    return id[0] == TABLE_BEGINS;
  }

  /** Returns the pruner that decides which entries of a full page are still needed. */
  static SortedPages.Pruner pruner(Rule rule, MaxEventTime maxEventTime) {
    Pruning.Needed needed = switch (rule.kind) {
      case AGGREGATE_INPUTS, CHANGES, TABLE -> Pruning.Needed.HOLDING;
      case INSTANT, TUMBLING, SESSION -> Pruning.Needed.NOTHING;
      case FIRST -> Pruning.Needed.FIRST;
    };
    // A row can only be a duplicate of one that is less than a window away.
    return new Pruning(1, needed, () -> maxEventTime.settledBefore(rule.horizon + rule.window));
  }

  private void trim(long bound) {
    if (rule.kind != Kind.FIRST) {
      Version.trim(versions, bound);
      return;
    }
    // The first row of a group stays for ever, so it is put back after all old rows are removed.
    Version first = Version.after(versions, Version.at(Long.MIN_VALUE));
    if (first != null) {
      versions.removeBelow(Version.at(bound));
      versions.put(first.key(), first.encode());
    }
  }

  /** Returns the records whose adjacent row may be that at a position, if this is known from a moment on. */
  private List<Version> others(byte[] key, long known) {
    List<Version> others = new ArrayList<>(1);
    for (Version record : Nearby.of(versions, key, !rule.forward(), known).records()) {
      if (record.op() != Version.RETRACT) {
        others.add(record);
      }
    }
    return others;
  }

  /** The outputs for a record from a moment of ingestion on. */
  private record State(long known, List<Part> parts) {}

  /** Returns the outputs for a record, null for none, as they were at a moment of ingestion and became known afterwards. */
  private List<State> states(Version of, long since) {
    if (of == null) {
      return List.of();
    }
    List<State> states = new ArrayList<>(1);
    for (Version revision : of.revisions()) {
      long from = Math.max(since, revision.ingested());
      if (from < revision.until(of)) {
        Nearby nearby = Nearby.of(versions, of.key(), rule.forward(), from);
        for (long moment : nearby.moments().headSet(revision.until(of))) {
          states.add(new State(moment, parts(revision, AdjacentRow.of(nearby.known(moment), rule.forward()), moment)));
        }
      }
    }
    return states;
  }

  private List<Part> parts(Version of, AdjacentRow adjacent, long known) {
    boolean twofold = rule.kind.twofold();
    List<Part> parts = new ArrayList<>();
    boolean put = of.op() == Version.PUT;
    if (!put && (of.op() == Version.RETRACT || rule.kind != Kind.TABLE)) {
      // The revision of a retraction depends on no other record, since it must not outweigh the same revision of the row under another key.
      parts.add(part(of, Version.RETRACT, of.time(), BEGIN, AdjacentRow.NOTHING, known));
      if (twofold) {
        parts.add(part(of, Version.RETRACT, of.time(), END, AdjacentRow.NOTHING, known));
      }
      return parts;
    }
    Version row = adjacent.row();
    boolean ends = row != null;
    if (rule.kind == Kind.AGGREGATE_INPUTS) {
      parts.add(part(of, Version.PUT, of.time(), BEGIN, AdjacentRow.NOTHING, known));
    } else {
      parts.add(part(of, stays(of, row) ? of.op() : Version.RETRACT, of.time(), BEGIN, adjacent.rank(), known));
      ends = ends && put && row.time() != of.time();
    }
    if (twofold) {
      int op = rule.kind == Kind.CHANGES ? Version.PUT : Version.DELETE;
      parts.add(part(of, ends ? op : Version.RETRACT, ends ? row.time() : of.time(), END, adjacent.rank(), known));
    }
    return parts;
  }

  private boolean stays(Version of, Version row) {
    if (row == null) {
      return true;
    }
    long time = of.time();
    long next = row.time();
    return switch (rule.kind) {
      case AGGREGATE_INPUTS -> true;
      case CHANGES, TABLE, INSTANT -> next != time;
      case TUMBLING -> Math.floorDiv(next, rule.window) != Math.floorDiv(time, rule.window);
      case SESSION -> next - time >= rule.window;
      case FIRST -> false;
    };
  }

  /**
   * Sends the outputs that changed at each moment: from those of the moment before, and from those of {@code before}, which were sent already.
   * The last outputs replace all of these, whenever they became known.
   *
   * @param held whether the record of {@code before} held; if it didn't, a failed attempt may have sent its outputs as puts, at its revision
   */
  private void sendAll(List<State> before, List<State> after, boolean held, Consumer<Part> out) {
    for (int i = 0; i < after.size(); i++) {
      State state = after.get(i);
      if (i > 0) {
        send(after.get(i - 1).parts, state.parts, held, out);
      }
      List<State> replaced = i == after.size() - 1 ? before : before.stream().filter(former -> former.known <= state.known).toList();
      replaced.forEach(former -> send(former.parts, state.parts, held, out));
      if (i == 0 && replaced.isEmpty()) {
        send(List.of(), state.parts, held, out);
      }
    }
  }

  /**
   * Sends the changed outputs. The retraction at the old position comes first, for a later operator or a shard of an index that keeps it there.
   *
   * @param held whether the record of {@code before} held; if it didn't, a failed attempt may have sent its outputs as puts, at its revision
   */
  private void send(List<Part> before, List<Part> after, boolean held, Consumer<Part> out) {
    for (int n = 0; n < after.size(); n++) {
      // The end of a table's row comes first, because {@link TableState} sends its output, with the revision of the begin, when the begin arrives.
      int i = rule.kind == Kind.TABLE ? after.size() - 1 - n : n;
      Version was = before.isEmpty() ? null : before.get(i).version;
      Version now = after.get(i).version;
      boolean stood = was != null && was.op() != Version.RETRACT;
      boolean stands = now.op() != Version.RETRACT;
      boolean differs = was != null && !Arrays.equals(was.row(), now.row());
      if (was != null && stood == stands && Arrays.equals(was.rev(), now.rev()) && !differs) {
        continue;
      }
      // Aggregate inputs, which only indexes read, need no retraction when an end moves, since an index finds an end by its identity and key.
      boolean later = stood && stands && rule.kind != Kind.AGGREGATE_INPUTS && was.time() != now.time();
      if ((stood && !stands) || later || (differs && held)) {
        out.accept(new Part(i, new Version(Version.RETRACT, was.time(), now.ingested(), was.id(), now.rev(), was.row())));
      }
      // A retraction is sent even if nothing stood here, because a failed attempt may have sent its row as a put ({@link Replay}).
      if (stands || ((!stood || differs) && !Version.isLeast(now.rev()))) {
        out.accept(new Part(i, now));
      }
    }
  }

  private Part part(Version of, int op, long time, int which, byte[] rank, long known) {
    byte[] rev = ByteBuffer.allocate(of.rev().length + rank.length).put(of.rev()).put(rank).array();
    return new Part(which, new Version(op, time, known, identity(of, which), rev, of.row()));
  }

  private byte[] identity(Version of, int which) {
    return switch (rule.kind) {
      case AGGREGATE_INPUTS -> ByteBuffer.allocate(of.id().length + 1).put(of.id()).put((byte) which).array();
      // Among events of one instant the begins come first, and the ends are in the order of their begins.
      case CHANGES -> ByteBuffer.allocate(1 + of.key().length).put((byte) which).put(of.key()).array();
      // A begin has a greater identity than an end, so it counts at the time at which another row ends.
      case TABLE -> ByteBuffer.allocate(1 + of.key().length).put(which == BEGIN ? TABLE_BEGINS : TABLE_ENDS).put(of.key()).array();
      default -> of.id();
    };
  }
}
