package io.caraway;

import java.util.Arrays;
import java.util.function.Consumer;

/**
 * The fan-out of a key's versions to all join keys under which the key has ever stood, in any revision.
 *
 * <p>So each of these join keys knows the whole timeline of the key, and ranks grow with it (docs/inside/records.md). If a join key received only the
 * versions that stand under it, it could have received a nearer version in a failed attempt that the next attempt never sends there.
 *
 * @param versions the versions of the key, as {@link AdjacentRowState} stores them
 * @param stands for each join key, the positions at which a version of the key has stood under it, with its operation, by which they are pruned
 */
record VersionFanOut(Slice versions, Slice stands) {
  /** A version as sent to a join key: a put if it stands under that join key, a delete if it doesn't. */
  record Copy(byte[] joinKey, Version version) {}

  /** Returns the pruner of {@code stands}. */
  static SortedPages.Pruner pruner(long horizon, MaxEventTime maxEventTime) {
    return new Pruning(2, Pruning.Needed.HOLDING, () -> maxEventTime.settledBefore(horizon));
  }

  /** Processes a version and its join key; {@code isNew} is true if the version was not known yet. */
  void version(Version version, byte[] at, boolean isNew, Consumer<Copy> out) {
    Slice own = stands.of(at);
    boolean follows = own.higher(Version.at(Long.MIN_VALUE)) != null;
    boolean trim = (isNew || own.get(version.key()) == null) && own.put(version.key(), Version.ofOp(version.op()));
    if (!follows) {
      for (SortedPages.Entry entry : versions.range(Version.at(Long.MIN_VALUE), null)) {
        if (!isNew || !Arrays.equals(entry.key(), version.key())) {
          // The join key knows nothing of the key before a version stands under it.
          out.accept(new Copy(at, elsewhere(Version.decode(entry)).knownFrom(version.ingested())));
        }
      }
    }
    if (isNew) {
      for (byte[] joinKey : stands.furtherKeys()) {
        out.accept(new Copy(joinKey, Arrays.equals(joinKey, at) ? version : elsewhere(version)));
      }
    } else if (version.op() == Version.RETRACT) {
      // The retraction is sent again, because a failed attempt may have sent the version to this join key ({@link Replay}).
      out.accept(new Copy(at, version));
    }
    if (trim) {
      trim();
    }
  }

  /** Removes positions of the key before the oldest version that is kept. */
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
