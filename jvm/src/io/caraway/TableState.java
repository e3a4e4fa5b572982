package io.caraway;

import java.io.ByteArrayOutputStream;
import java.nio.ByteBuffer;
import java.util.function.Consumer;

/**
 * A join of two tables at the places where the right side changes (docs/records.md); where the left side does, {@link AsOfState} joins.
 *
 * <p>Left records are what {@link NeighbourState.Kind#TABLE} makes of versions: a put where one begins, a delete where it ends, each under
 * the join key of its row. So under one join key stands what is to be known of a key of the left table: when it was there, with which row.
 */
final class TableState {
  private static final int PIECE = 2;

  private final AsOfState.Rule rule;
  private final Slice tables;
  private final Slice rights;
  private final Frontier leftFrontier;

  TableState(AsOfState.Rule rule, Slice tables, Slice rights, Frontier leftFrontier) {
    this.rule = rule;
    this.tables = tables;
    this.rights = rights;
    this.leftFrontier = leftFrontier;
  }

  /** Takes a begin or an end of a row of {@code table}, which is a key of the left side. */
  void left(byte[] table, Version event, Consumer<AsOfState.Joined> out) {
    Slice events = tables.of(table);
    Version replaced = event.known(events);
    if (!event.replaces(replaced) || (event.op() == Version.VOID && Version.isLeast(event.rev()))) {
      return;
    }
    boolean trim = events.put(event.key(), event.encode());
    Version next = Version.after(events, event.key());
    for (SortedPages.Entry entry : rights.range(Version.at(event.time()), next == null ? null : Version.at(next.time()))) {
      send(table, events, Version.decode(entry), out);
    }
    leftFrontier.advance(event.time());
    long bound = AsOfState.rightBound(rule, leftFrontier);
    if (trim && bound > Long.MIN_VALUE) {
      Version.trim(events, bound);
    }
  }

  /** Takes a version of the right side, which {@link AsOfState} has put in its place: each key of the left side changes there. */
  void right(Version row, Consumer<AsOfState.Joined> out) {
    for (byte[] table : tables.furtherKeys()) {
      send(table, tables.of(table), row, out);
    }
  }

  /**
   * Sends what holds of a key from the time of a right version on.
   *
   * <p>The revision is that of the right version and the rank of what is known of the key up to there. Rows of one key replace each other
   * in one place, so that none is left of one that has ended since.
   */
  private void send(byte[] table, Slice events, Version right, Consumer<AsOfState.Joined> out) {
    ByteArrayOutputStream rev = new ByteArrayOutputStream();
    Stretch.write(rev, right.rev(), 0);
    rev.write(right.op() == Version.VOID ? 0 : 1);
    Stretch stretch = Stretch.of(events, Version.at(right.time() + 1), false);
    Version left = stretch.neighbour();
    if (left == null && stretch.rank().length == Stretch.NOTHING.length) {
      return;
    }
    rev.writeBytes(right.op() == Version.VOID ? Stretch.NOTHING : stretch.rank());
    boolean stands = right.op() != Version.VOID && left != null && left.op() == Version.PUT && left.time() < right.time();
    boolean matched = right.op() == Version.PUT;
    int op = !stands ? Version.VOID : matched || !rule.inner() ? Version.PUT : Version.DELETE;
    // A void has a row too, which tells operators further on of which key it is.
    Version of = left != null ? left : Version.decode(events.lower(Version.at(right.time() + 1)));
    Version piece = new Version(op, right.time(), of.ingested(), identity(table, right), rev.toByteArray(), of.row());
    out.accept(new AsOfState.Joined(op, piece, piece.rev(), stands && matched ? right.row() : null));
  }

  private static byte[] identity(byte[] table, Version right) {
    return ByteBuffer.allocate(1 + right.id().length + table.length).put((byte) PIECE).put(right.id()).put(table).array();
  }
}
