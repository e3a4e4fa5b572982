package io.caraway;

import java.nio.ByteBuffer;
import java.util.Arrays;

/** A record as the operators store it: its position in time, its operation, its encoded row. */
record Version(int op, long time, long ingested, byte[] id, byte[] rev, byte[] row) {
  static final int PUT = 1;
  static final int RETRACT = 0;
  static final int DELETE = -1;

  private static final int HEADER_BYTES = 1 + Long.BYTES + Short.BYTES;

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
    return ByteBuffer.allocate(HEADER_BYTES + rev.length + row.length)
        .put((byte) op).putLong(ingested).putShort((short) rev.length).put(rev).put(row).array();
  }

  static Version decode(byte[] key, byte[] value) {
    ByteBuffer in = ByteBuffer.wrap(value);
    int op = in.get();
    long ingested = in.getLong();
    byte[] rev = new byte[in.getShort() & 0xffff];
    in.get(rev);
    byte[] row = new byte[in.remaining()];
    in.get(row);
    long time = ByteBuffer.wrap(key).getLong() ^ Long.MIN_VALUE;
    return new Version(op, time, ingested, Arrays.copyOfRange(key, Long.BYTES, key.length), rev, row);
  }

  /** Returns the operation of an encoded version. */
  static int opOf(byte[] value) {
    return value[0];
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

  /** Returns this record with its arrival in place of the ingestion time; joins need the arrival of right rows. */
  Version arrived(long arrival) {
    return new Version(op, time, arrival, id, rev, row);
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
