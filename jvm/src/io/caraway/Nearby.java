package io.caraway;

import java.util.ArrayList;
import java.util.List;
import java.util.TreeSet;
import java.util.function.Predicate;

/**
 * The records of a key on one side of a position, nearest first, as far as an output at the position may have depended on them since a moment of
 * ingestion.
 *
 * <p>Records may arrive in another order than that in which they were ingested, for instance in a backfill. The output for a position then has to be
 * computed for each moment at which it changed, since a reader of what was known at a time sees only what had been ingested by then
 * (docs/inside/records.md).
 *
 * @param since the moment, in microseconds
 * @param counts whether the output depends on no record behind this one, if that isn't retracted
 * @param records the records up to the first one that counts, isn't retracted and was ingested by then
 * @param complete false if there were too many of them, so that the output at {@code since} itself isn't known
 */
record Nearby(long since, Predicate<Version> counts, List<Version> records, boolean complete) {
  // The most records for which an output is computed again as it was before they were ingested, since each may cost a record of output. A row that
  // was ingested before more of its matches has outputs as of the nearest ones only.
  private static final int MOST = 64;

  static Nearby of(Slice versions, byte[] position, boolean forward, long since) {
    return of(versions, position, forward, since, Long.MIN_VALUE, version -> true);
  }

  /**
   * Returns the records beside a position.
   *
   * @param oldest the least event time of the records
   * @param counts see {@link Nearby}
   */
  static Nearby of(Slice versions, byte[] position, boolean forward, long since, long oldest, Predicate<Version> counts) {
    List<Version> records = new ArrayList<>(1);
    int later = 0;
    boolean stands = false;
    Version found = next(versions, position, forward);
    while (found != null && found.time() >= oldest) {
      records.add(found);
      if (standsSince(since, found, counts)) {
        break;
      }
      stands |= found.op() != Version.RETRACT && counts.test(found);
      if (found.ingested() > since && ++later >= MOST && stands) {
        return new Nearby(since, counts, records, false);
      }
      found = next(versions, found.key(), forward);
    }
    return new Nearby(since, counts, records, true);
  }

  private static boolean standsSince(long since, Version record, Predicate<Version> counts) {
    Version then = record.asOf(since);
    return record.op() != Version.RETRACT && counts.test(record) && then != null && then.op() != Version.RETRACT;
  }

  /** Returns the nearest record that counts and hasn't been retracted at any moment from {@code since} on, or null. */
  Version lasting() {
    Version last = records.isEmpty() ? null : records.get(records.size() - 1);
    return last != null && standsSince(since, last, counts) ? last : null;
  }

  /**
   * Returns the moments from {@code since} on at which the known records change, in order.
   *
   * <p>A moment is left out if a record has been corrected since, and its revision of then isn't kept. The output of then was sent if that revision
   * was read in time.
   */
  TreeSet<Long> moments() {
    TreeSet<Long> moments = new TreeSet<>();
    if (complete) {
      moments.add(since);
    }
    records.forEach(record -> record.revisions().forEach(revision -> moments.add(Math.max(since, revision.ingested()))));
    if (moments.size() > 1) {
      long last = moments.last();
      moments.removeIf(moment -> moment < last && !isKept(moment));
    }
    return moments;
  }

  private boolean isKept(long moment) {
    for (Version record : records) {
      Version then = record.asOf(moment);
      if (record.isLostAt(moment)) {
        return false;
      }
      if (then != null && then.op() != Version.RETRACT && counts.test(then)) {
        return true;
      }
    }
    return complete;
  }

  /** Returns the records that count and had been ingested by a moment, up to the first one that isn't retracted. */
  List<Version> known(long moment) {
    return known(moment, counts);
  }

  /** Returns the records of a kind that had been ingested by a moment, up to the first one that isn't retracted. */
  List<Version> known(long moment, Predicate<Version> kind) {
    List<Version> known = new ArrayList<>(1);
    for (Version record : records) {
      Version then = record.asOf(moment);
      if (then != null && kind.test(then)) {
        known.add(then);
        if (then.op() != Version.RETRACT) {
          break;
        }
      }
    }
    return known;
  }

  /** Returns the nearest record of {@link #known} that isn't retracted, or null. */
  static Version standing(List<Version> known) {
    Version last = known.isEmpty() ? null : known.get(known.size() - 1);
    return last == null || last.op() == Version.RETRACT ? null : last;
  }

  /** Returns the arrival of the last one of the known records, 0 if there is none. */
  static long settled(List<Version> known) {
    return known.stream().mapToLong(Version::arrival).max().orElse(0);
  }

  private static Version next(Slice versions, byte[] position, boolean forward) {
    return Version.decode(forward ? versions.higher(position) : versions.lower(position));
  }
}
