package io.caraway;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.function.LongSupplier;

/**
 * Decides which entries of a full page are still needed, if event times before a bound are settled. An entry is kept if the page alone doesn't show
 * that it can go.
 *
 * <p>Entries are {@link Version}s under one or more keys and their position in time.
 *
 * @param keys the number of keys before the position in an entry
 * @param bound the settled time; the least long if there is none
 */
record Pruning(int keys, Needed needed, LongSupplier bound) implements SortedPages.Pruner {
  /** The entries of a key before the bound that are needed. */
  enum Needed {
    /** Nothing. */
    NOTHING,
    /** The version that holds at the bound. */
    HOLDING,
    /** The first version of all. */
    FIRST
  }

  @Override
  public List<SortedPages.Entry> prune(List<SortedPages.Entry> entries, SortedPages.Entry added) {
    long settled = bound.getAsLong();
    if (settled == Long.MIN_VALUE) {
      return entries;
    }
    List<SortedPages.Entry> kept = new ArrayList<>();
    int end;
    for (int begin = 0; begin < entries.size(); begin = end) {
      int prefix = Slice.prefixLength(entries.get(begin).key(), keys);
      end = begin + 1;
      while (end < entries.size() && sameKey(entries.get(begin).key(), entries.get(end).key(), prefix)) {
        end++;
      }
      List<SortedPages.Entry> old = new ArrayList<>();
      for (SortedPages.Entry entry : entries.subList(begin, end)) {
        if (Arrays.compareUnsigned(entry.key(), prefix, entry.key().length, Version.at(settled), 0, Long.BYTES) < 0) {
          old.add(entry);
        }
      }
      SortedPages.Entry pillar = pillar(old, begin > 0);
      for (SortedPages.Entry entry : old) {
        if (entry == pillar || entry == added) {
          kept.add(entry);
        }
      }
      kept.addAll(entries.subList(begin + old.size(), end));
    }
    return kept;
  }

  /** Returns the one of a key's old entries that is needed, or null. It isn't {@code whole} if the page may begin in the middle of the key. */
  private SortedPages.Entry pillar(List<SortedPages.Entry> old, boolean whole) {
    return switch (needed) {
      case NOTHING -> null;
      case FIRST -> old.stream().filter(entry -> !whole || !isRetraction(entry)).findFirst().orElse(null);
      case HOLDING -> {
        SortedPages.Entry holds = null;
        for (SortedPages.Entry entry : old) {
          holds = isRetraction(entry) ? holds : entry;
        }
        // A delete isn't needed to know that a key has no row, unless the page before may have an older version, which the delete hides.
        yield holds != null && whole && Version.opOf(holds.value()) == Version.DELETE ? null : holds;
      }
    };
  }

  private static boolean isRetraction(SortedPages.Entry entry) {
    return Version.opOf(entry.value()) == Version.RETRACT;
  }

  private static boolean sameKey(byte[] one, byte[] other, int prefix) {
    return other.length >= prefix && Arrays.equals(one, 0, prefix, other, 0, prefix);
  }
}
