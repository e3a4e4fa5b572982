package io.caraway;

import java.io.ByteArrayOutputStream;
import java.util.List;

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

  static final AdjacentRow NONE = new AdjacentRow(null, NOTHING);

  // The byte before each record of a rank, greater than the byte at the end.
  private static final int ENTRY = 1;

  /** Returns the adjacent row and its rank, of the records up to it ({@link Nearby#known}). */
  static AdjacentRow of(List<Version> known, boolean forward) {
    ByteArrayOutputStream rank = new ByteArrayOutputStream();
    // The nearer of two positions must give the greater rank.
    int flip = forward ? 0xff : 0;
    for (Version record : known) {
      rank.write(ENTRY);
      for (byte b : Version.at(record.time())) {
        rank.write(b ^ flip);
      }
      write(rank, record.id(), flip);
      write(rank, record.rev(), 0);
      rank.write(record.op() == Version.RETRACT ? 0 : 1);
    }
    rank.write(0);
    return new AdjacentRow(Nearby.standing(known), rank.toByteArray());
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
