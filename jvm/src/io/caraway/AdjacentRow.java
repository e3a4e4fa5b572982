package io.caraway;

import java.io.ByteArrayOutputStream;
import java.util.function.Predicate;

/**
 * The adjacent row of a record and the rank of the records up to it. The adjacent row is the nearest one of the key, on one side, that isn't
 * retracted.
 *
 * <p>The output for a record and its adjacent row needs a revision that depends on the records that have arrived but not on their order, and that
 * grows as more records arrive. The {@code rank} is such a revision: the records up to the adjacent row, nearest first, each with its position and
 * revision. If one of two states knows more records, then at the first difference of their ranks it has a nearer record, or the same one with a
 * greater revision. A record changes the ranks of its two adjacent rows only.
 */
record AdjacentRow(Version row, byte[] rank) {
  /**
   * The rank of outputs that depend on no other record, which is the least rank. Every rank ends with this byte, so that bytes appended to it don't
   * change the order of ranks.
   */
  static final byte[] NOTHING = {0};

  // The byte before each record of a rank, greater than the byte at the end.
  private static final int ENTRY = 1;

  /** Returns the adjacent row and its rank on one side of a position, the position itself not included. */
  static AdjacentRow of(Slice versions, byte[] position, boolean forward) {
    return of(versions, position, forward, version -> true);
  }

  /** Returns the adjacent row and its rank among the records that count. */
  static AdjacentRow of(Slice versions, byte[] position, boolean forward, Predicate<Version> counts) {
    ByteArrayOutputStream rank = new ByteArrayOutputStream();
    Version found = next(versions, position, forward);
    while (found != null) {
      if (!counts.test(found)) {
        found = next(versions, found.key(), forward);
        continue;
      }
      rank.write(ENTRY);
      // The nearer of two positions must give the greater rank.
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

  /** Writes bytes with a mark at their end, in a form that keeps their order whatever bytes follow. */
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
