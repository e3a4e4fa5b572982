package io.caraway;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/**
 * A record as the operators store it: its position in time, its operation, its encoded row.
 *
 * @param ingested the moment from which the record is known, in microseconds (docs/inside/records.md)
 * @param arrival the offset of a right row of a join, plus one; 0 of other records
 * @param corrected whether there was a revision of the record that was known before this one
 * @param former the revision before this one, if it is kept: one of the same row, which in turn may have a former one
 */
record Version(
    int op, long time, long ingested, long arrival, boolean corrected, Version former, byte[] id, byte[] rev, byte[] row) {
  static final int PUT = 1;
  static final int RETRACT = 0;
  static final int DELETE = -1;
  private static final byte[] NOTHING = {};

  private static final int HEADER_BYTES = 1 + 2 * Long.BYTES + Integer.BYTES;
  // The most revisions of a record that are kept. All but the newest are only for records that are read late, so most need none of them.
  private static final int MOST_REVISIONS = 8;
  // The first byte of an encoded record has the operation, plus one, and these bits. An arrival and a former revision follow only if there are any.
  private static final int OPERATION = 3;
  private static final int ARRIVED = 4;
  private static final int CORRECTED = 8;
  private static final int HAS_FORMER = 16;

  Version(int op, long time, long ingested, byte[] id, byte[] rev, byte[] row) {
    this(op, time, ingested, 0, false, null, id, rev, row);
  }

  /** Returns the least key at a time, below those of all records at that time. */
  static byte[] at(long time) {
    // With the sign flipped, the order of bytes is that of times.
    return ByteBuffer.allocate(Long.BYTES).putLong(time ^ Long.MIN_VALUE).array();
  }

  /** Returns the key under which this record is stored: its time, then its identity, so that the later of two records at one time wins. */
  byte[] key() {
    return ByteBuffer.allocate(Long.BYTES + id.length).putLong(time ^ Long.MIN_VALUE).put(id).array();
  }

  byte[] encode() {
    List<Version> revisions = revisions();
    ByteBuffer out = ByteBuffer.allocate(row.length + revisions.stream().mapToInt(revision -> HEADER_BYTES + revision.rev.length).sum());
    for (int i = revisions.size() - 1; i >= 0; i--) {
      revisions.get(i).encodeRevision(out);
    }
    return Arrays.copyOf(out.put(row).array(), out.position());
  }

  private void encodeRevision(ByteBuffer out) {
    out.put((byte) (op + 1 | (arrival == 0 ? 0 : ARRIVED) | (corrected ? CORRECTED : 0) | (former == null ? 0 : HAS_FORMER))).putLong(ingested);
    if (arrival != 0) {
      out.putLong(arrival);
    }
    out.putInt(rev.length).put(rev);
  }

  static Version decode(byte[] key, byte[] value) {
    ByteBuffer in = ByteBuffer.wrap(value);
    long time = ByteBuffer.wrap(key).getLong() ^ Long.MIN_VALUE;
    byte[] id = Arrays.copyOfRange(key, Long.BYTES, key.length);
    List<Version> found = new ArrayList<>(1);
    boolean more = true;
    while (more) {
      more = (in.get(in.position()) & HAS_FORMER) != 0;
      found.add(decodeRevision(in, time, id));
    }
    byte[] row = new byte[in.remaining()];
    in.get(row);
    Version version = null;
    for (int i = found.size() - 1; i >= 0; i--) {
      version = found.get(i).with(version, row);
    }
    return version;
  }

  private static Version decodeRevision(ByteBuffer in, long time, byte[] id) {
    int first = in.get();
    long ingested = in.getLong();
    long arrival = (first & ARRIVED) == 0 ? 0 : in.getLong();
    byte[] rev = new byte[in.getInt()];
    in.get(rev);
    return new Version((first & OPERATION) - 1, time, ingested, arrival, (first & CORRECTED) != 0, null, id, rev, NOTHING);
  }

  private Version with(Version before, byte[] payload) {
    return new Version(op, time, ingested, arrival, corrected, before, id, rev, payload);
  }

  /** Returns the operation of an encoded version. */
  static int opOf(byte[] value) {
    return (value[0] & OPERATION) - 1;
  }

  /** Returns the least bytes of which {@link #opOf} returns an operation. */
  static byte[] ofOp(int op) {
    return new byte[] {(byte) (op + 1)};
  }

  static Version decode(SortedPages.Entry entry) {
    return entry == null ? null : decode(entry.key(), entry.value());
  }

  /** Returns the newest version that is not retracted below {@code key}, or null. */
  static Version before(Slice versions, byte[] key) {
    Version found = decode(versions.lower(key));
    while (found != null && found.op == RETRACT) {
      found = decode(versions.lower(found.key()));
    }
    return found;
  }

  /** Returns the record stored under this record's key, or null. */
  Version known(Slice versions) {
    byte[] key = key();
    byte[] value = versions.get(key);
    return value == null ? null : decode(key, value);
  }

  /** Returns the oldest version that is not retracted above {@code key}, or null. */
  static Version after(Slice versions, byte[] key) {
    Version found = decode(versions.higher(key));
    while (found != null && found.op == RETRACT) {
      found = decode(versions.higher(found.key()));
    }
    return found;
  }

  /** Removes the versions that can't hold at {@code bound} or later: those older than the version that holds at {@code bound}. */
  static void trim(Slice versions, long bound) {
    Version holds = before(versions, at(bound));
    if (holds != null) {
      versions.removeBelow(holds.key());
    }
  }

  /** Returns whether this record replaces another one of the same identity: by a greater revision, or as a put after a retraction. */
  boolean replaces(Version other) {
    if (other == null) {
      return true;
    }
    int order = Arrays.compareUnsigned(rev, other.rev);
    return order > 0 || (order == 0 && op != RETRACT && other.op == RETRACT);
  }

  /** Returns whether a revision is the least one, so that no record of its identity can have come before. */
  static boolean isLeast(byte[] rev) {
    for (byte b : rev) {
      if (b != 0) {
        return false;
      }
    }
    return true;
  }

  /** Returns this right row with its arrival. */
  Version arrived(long offset) {
    return new Version(op, time, ingested, offset + 1, corrected, former, id, rev, row);
  }

  /** Returns this record as the output of causes of which the latest one was ingested at a moment, if that is later. */
  Version knownFrom(long moment) {
    return moment <= ingested ? this : new Version(op, time, moment, arrival, corrected, former, id, rev, row);
  }

  /** Returns the retraction of this record, with the same revision. */
  Version retracted() {
    return new Version(RETRACT, time, ingested, id, rev, row);
  }

  /** Returns this record as an operator stores it in place of another revision, null if there is none. */
  Version replacing(Version replaced) {
    if (replaced == null) {
      return this;
    }
    // Revisions that were ingested together with this one or later are never seen beside it.
    List<Version> revisions = replaced.revisions();
    List<Version> before = revisions.stream().filter(revision -> revision.ingested < ingested).toList();
    boolean follows = !before.isEmpty() || revisions.get(0).corrected;
    List<Version> same = Arrays.equals(replaced.row, row) ? before : List.of();
    Version kept = null;
    for (Version revision : same.subList(Math.max(0, same.size() - MOST_REVISIONS + 1), same.size())) {
      kept = new Version(revision.op, time, revision.ingested, revision.arrival, revision.corrected, kept, id, revision.rev, row);
    }
    return new Version(op, time, ingested, arrival, follows, kept, id, rev, row);
  }

  /** Returns the revision that was known at a moment; null if there was none, or it isn't kept. */
  Version asOf(long moment) {
    return ingested <= moment ? this : former == null ? null : former.asOf(moment);
  }

  /** Returns whether a revision that was known at a moment may not be kept. */
  boolean isLostAt(long moment) {
    return asOf(moment) == null && revisions().get(0).corrected;
  }

  /** Returns the kept revisions, the oldest first. */
  List<Version> revisions() {
    if (former == null) {
      return List.of(this);
    }
    List<Version> revisions = new ArrayList<>(former.revisions());
    revisions.add(this);
    return revisions;
  }

  /** Returns the moment from which this revision of a record is replaced by the next one. */
  long until(Version record) {
    Version next = record;
    while (this != next && next.former != this) {
      next = next.former;
    }
    return this == next ? Long.MAX_VALUE : next.ingested;
  }

  /** Returns the row that a right version adds to a left row, null if it is a delete or retraction. */
  byte[] joined() {
    return op == DELETE || row.length == 0 ? null : row;
  }

  /** Returns this record's revision followed by {@code seen}, the arrival up to which its output has seen the other input. */
  byte[] revision(long seen) {
    return ByteBuffer.allocate(rev.length + Long.BYTES).put(rev).putLong(seen).array();
  }
}
