package io.caraway;

import java.util.Arrays;
import java.util.function.Consumer;

/**
 * The join keys under which a key of a table has stood, in any revision: each of them hears of all versions of that key.
 *
 * <p>So what is known under a join key is the whole timeline of the key, and its rank grows with it (docs/revisions.md). A join key that heard
 * only of what stands there could, in a run that a crash ended, have seen something nearer that the next run never tells it of.
 *
 * @param versions those of the key, as {@link AdjacentRowState} keeps them
 * @param stands of the key: under each join key the positions at which a version stood there
 */
record VersionFanOut(Slice versions, Slice stands) {
  private static final byte[] NOTHING = {};

  /** What a join key is to know of a version: a put if it stands there, a delete if it doesn't. */
  record Copy(byte[] joinKey, Version version) {}

  /** Takes a version and its join key; {@code isNew} tells whether it was not known yet. */
  void version(Version version, byte[] at, boolean isNew, Consumer<Copy> out) {
    Slice own = stands.of(at);
    boolean follows = own.higher(Version.at(Long.MIN_VALUE)) != null;
    boolean trim = own.put(version.key(), NOTHING);
    if (!follows) {
      for (SortedPages.Entry entry : versions.range(Version.at(Long.MIN_VALUE), null)) {
        if (!isNew || !Arrays.equals(entry.key(), version.key())) {
          out.accept(new Copy(at, elsewhere(Version.decode(entry))));
        }
      }
    }
    if (isNew) {
      for (byte[] joinKey : stands.furtherKeys()) {
        out.accept(new Copy(joinKey, Arrays.equals(joinKey, at) ? version : elsewhere(version)));
      }
    } else if (version.op() == Version.RETRACT) {
      // That it isn't there need not be known there: a failed attempt may have said that it is ({@link Replay}).
      out.accept(new Copy(at, version));
    }
    if (trim) {
      trim();
    }
  }

  /** Forgets where the key stood before the oldest version that is kept. */
  private void trim() {
    SortedPages.Entry oldest = versions.higher(Version.at(Long.MIN_VALUE));
    if (oldest == null) {
      return;
    }
    for (byte[] joinKey : stands.furtherKeys()) {
      stands.of(joinKey).removeBelow(oldest.key());
    }
  }

  private static Version elsewhere(Version version) {
    int op = version.op() == Version.RETRACT ? Version.RETRACT : Version.DELETE;
    return new Version(op, version.time(), version.ingested(), version.id(), version.rev(), version.row());
  }
}
