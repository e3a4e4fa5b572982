package io.caraway;

import java.nio.ByteBuffer;
import java.util.function.Consumer;

/**
 * The versions of one key as contributions (docs/records.md): each counts from its time on (id + 00), and is taken out again at the time
 * of the next one (id + 01).
 */
final class ChangelogState {
  private static final int BEGIN = 0;
  private static final int END = 1;

  private final long horizon;
  private final SortedPages versions;
  private final Frontier frontier;

  ChangelogState(long horizon, SortedPages versions, Frontier frontier) {
    this.horizon = horizon;
    this.versions = versions;
    this.frontier = frontier;
  }

  void version(Version version, long offset, Consumer<Version> out) {
    byte[] key = version.key();
    byte[] known = versions.get(key);
    Version replaced = known == null ? null : Version.decode(key, known);
    if (!version.replaces(replaced)) {
      return;
    }
    boolean trim = versions.put(key, version.encode());
    Version previous = Version.before(versions, key);
    Version next = Version.after(versions, key);
    if (version.op() == Version.PUT) {
      out.accept(part(version, Version.PUT, version.time(), BEGIN, 0));
      if (next != null) {
        out.accept(part(version, Version.DELETE, next.time(), END, offset + 1));
      }
    } else if (version.op() == Version.VOID || (replaced != null && replaced.op() == Version.PUT)) {
      // It depends on no other record, and must not outweigh the same revision of the row under another key.
      out.accept(part(version, Version.VOID, version.time(), BEGIN, 0));
      out.accept(part(version, Version.VOID, version.time(), END, 0));
    }
    boolean was = replaced != null && replaced.op() != Version.VOID;
    boolean is = version.op() != Version.VOID;
    if (previous != null && previous.op() == Version.PUT && was != is) {
      Version end = is ? version : next;
      out.accept(
          end == null
              ? part(previous, Version.VOID, previous.time(), END, offset + 1)
              : part(previous, Version.DELETE, end.time(), END, offset + 1));
    }
    frontier.advance(version.time());
    long bound = frontier.settledBefore(horizon);
    if (trim && bound > Long.MIN_VALUE) {
      Version.trim(versions, bound);
    }
  }

  private static Version part(Version of, int op, long time, int which, long seen) {
    byte[] id = ByteBuffer.allocate(of.id().length + 1).put(of.id()).put((byte) which).array();
    return new Version(op, time, of.ingested(), id, of.revision(seen), of.row());
  }
}
