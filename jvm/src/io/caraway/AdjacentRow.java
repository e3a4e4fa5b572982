package io.caraway;

import java.io.ByteArrayOutputStream;
import java.util.function.Predicate;

/**
 * What lies between a record and its adjacent row: the nearest one of its key, on one side, that is not retracted.
 *
 * <p>What an operator makes of a record and its adjacent row needs a revision which is a pure function of what has arrived, not of the order,
 * and which grows as more arrives. That is the {@code rank}: the records up to the adjacent row, the nearest first, each with its position and
 * revision. Of two states of which one knows more, compare at the first difference: there the better informed one has a record that is
 * nearer, or the same one with a greater revision. A record changes the ranks of its two adjacent rows only.
 */
record AdjacentRow(Version row, byte[] rank) {
  /** The rank of what depends on no other record: the least one. Ranks end with this byte, so that what is appended doesn't disturb. */
  static final byte[] NOTHING = {0};

  private static final int ENTRY = 1;

  /** Returns what lies on one side of a position, the position itself not included. */
  static AdjacentRow of(Slice versions, byte[] position, boolean forward) {
    return of(versions, position, forward, version -> true);
  }

  /** Returns what lies there of the records that count. */
  static AdjacentRow of(Slice versions, byte[] position, boolean forward, Predicate<Version> counts) {
    ByteArrayOutputStream rank = new ByteArrayOutputStream();
    Version found = next(versions, position, forward);
    while (found != null) {
      if (!counts.test(found)) {
        found = next(versions, found.key(), forward);
        continue;
      }
      rank.write(ENTRY);
      // The nearer of two positions is the greater rank.
      int flip = forward ? 0xff : 0;
      for (byte b : Version.at(found.time())) {
        rank.write(b ^ flip);
      }
      write(rank, found.id(), flip);
      write(rank, found.rev(), 0);
      rank.write(found.op() == Version.RETRACT ? 0 : 1);
      if (found.op() != Version.RETRACT) {
        break;
      }
      found = next(versions, found.key(), forward);
    }
    rank.write(0);
    return new AdjacentRow(found, rank.toByteArray());
  }

  private static Version next(Slice versions, byte[] position, boolean forward) {
    return Version.decode(forward ? versions.higher(position) : versions.lower(position));
  }

  /** Writes bytes with a mark at their end, in a form that keeps their order whatever follows. */
  static void write(ByteArrayOutputStream out, byte[] bytes, int flip) {
    for (byte b : bytes) {
      out.write(b ^ flip);
      if (b == 0) {
        out.write(0xff ^ flip);
      }
    }
    out.write(flip);
    out.write(flip);
  }
}
