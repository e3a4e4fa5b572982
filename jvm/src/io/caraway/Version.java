package io.caraway;

import java.nio.ByteBuffer;
import java.util.Arrays;

/** A record as the operators hold it: where it stands in time, what it does, its encoded row. */
record Version(int op, long time, long ingested, byte[] id, byte[] rev, byte[] row) {
  static final int PUT = 1;
  static final int RETRACT = 0;
  static final int DELETE = -1;

  private static final int HEADER_BYTES = 1 + Long.BYTES + Short.BYTES;

  /** Returns the least key of a time: all records at that time lie from here on. */
  static byte[] at(long time) {
    // With the sign flipped, bytes in order are times in order.
    return ByteBuffer.allocate(Long.BYTES).putLong(time ^ Long.MIN_VALUE).array();
  }

  /** Returns the key under which this record is kept: by time, then by identity, so that the later of two at one time wins. */
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

  /** Returns the op of an encoded version. */
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

  /** Returns what is kept in the place of this record, or null. */
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

  /** Drops what can't hold at {@code bound} or later any more: all that is older than the version that holds there. */
  static void trim(Slice versions, long bound) {
    Version holds = before(versions, at(bound));
    if (holds != null) {
      versions.removeBelow(holds.key());
    }
  }

  /** Tells whether this record replaces another one of the same identity: by a greater revision, or as a put after a retraction. */
  boolean replaces(Version other) {
    if (other == null) {
      return true;
    }
    int order = Arrays.compareUnsigned(rev, other.rev);
    return order > 0 || (order == 0 && op != RETRACT && other.op == RETRACT);
  }

  /** Tells whether no revision is less: nothing can have been before it. */
  static boolean isLeast(byte[] rev) {
    for (byte b : rev) {
      if (b != 0) {
        return false;
      }
    }
    return true;
  }

  /** Returns this record with another number in place of the time of its ingestion: a right row of a join needs its arrival instead. */
  Version arrived(long arrival) {
    return new Version(op, time, arrival, id, rev, row);
  }

  /** Returns what a right version adds to a left row, null if nothing. */
  byte[] joined() {
    return op == DELETE || row.length == 0 ? null : row;
  }

  /** Returns this record's revision with a suffix: how much of the other input its output has seen. */
  byte[] revision(long seen) {
    return ByteBuffer.allocate(rev.length + Long.BYTES).put(rev).putLong(seen).array();
  }
}
