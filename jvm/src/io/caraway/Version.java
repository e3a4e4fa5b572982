package io.caraway;

import java.nio.ByteBuffer;
import java.util.Arrays;

/**
 * A record as the operators store it: its position in time, its operation, its encoded row.
 *
 * @param ingested the moment from which the record is known, in microseconds (docs/records.md)
 * @param arrival the offset of a right row of a join, plus one; 0 of other records
 * @param corrected whether an operator has replaced a former revision of the record by this one
 */
record Version(int op, long time, long ingested, long arrival, boolean corrected, byte[] id, byte[] rev, byte[] row) {
  static final int PUT = 1;
  static final int RETRACT = 0;
  static final int DELETE = -1;

  private static final int HEADER_BYTES = 1 + Long.BYTES + Short.BYTES;
  // The first byte of an encoded record has the operation, plus one, and these bits. An arrival follows only if there is one.
  private static final int OPERATION = 3;
  private static final int ARRIVED = 4;
  private static final int CORRECTED = 8;

  Version(int op, long time, long ingested, byte[] id, byte[] rev, byte[] row) {
    this(op, time, ingested, 0, false, id, rev, row);
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
    boolean arrived = arrival != 0;
    ByteBuffer out = ByteBuffer.allocate(HEADER_BYTES + (arrived ? Long.BYTES : 0) + rev.length + row.length)
        .put((byte) (op + 1 | (arrived ? ARRIVED : 0) | (corrected ? CORRECTED : 0))).putLong(ingested);
    if (arrived) {
      out.putLong(arrival);
    }
    return out.putShort((short) rev.length).put(rev).put(row).array();
  }

  static Version decode(byte[] key, byte[] value) {
    ByteBuffer in = ByteBuffer.wrap(value);
    int first = in.get();
    long ingested = in.getLong();
    long arrival = (first & ARRIVED) == 0 ? 0 : in.getLong();
    byte[] rev = new byte[in.getShort() & 0xffff];
    in.get(rev);
    byte[] row = new byte[in.remaining()];
    in.get(row);
    long time = ByteBuffer.wrap(key).getLong() ^ Long.MIN_VALUE;
    byte[] id = Arrays.copyOfRange(key, Long.BYTES, key.length);
    return new Version(opOf(value), time, ingested, arrival, (first & CORRECTED) != 0, id, rev, row);
  }

  /** Returns the operation of an encoded version. */
  static int opOf(byte[] value) {
    return (value[0] & OPERATION) - 1;
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
    return new Version(op, time, ingested, offset + 1, corrected, id, rev, row);
  }

  /** Returns this record as the output of causes of which the latest one was ingested at a moment, if that is later. */
  Version knownFrom(long moment) {
    return moment <= ingested ? this : new Version(op, time, moment, arrival, corrected, id, rev, row);
  }

  /** Returns this record as an operator stores it in place of another revision, null if there is none. */
  Version inPlaceOf(Version replaced) {
    return replaced == null ? this : new Version(op, time, ingested, arrival, true, id, rev, row);
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
