package io.caraway;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.TreeSet;
import java.util.function.ToIntFunction;

/** Random records as a topic delivers them: late, at equal times, sent again, revised, retracted. */
final class Traces {
  static final long SETTLE_MS = 600_000;

  /** The arrival of a record of one side, with its offset. */
  record Arrival(boolean right, Version version, long offset) {}

  private Traces() {}

  /** Returns an input whose records may be revised and deleted, with few times and identities, so that many coincide. */
  static List<Version> records(Random random, int count, int times, boolean deletes, boolean revisions) {
    List<Version> made = new ArrayList<>();
    Map<Integer, Integer> revs = new HashMap<>();
    Map<Integer, Long> positions = new HashMap<>();
    for (int i = 0; i < count; i++) {
      boolean known = !positions.isEmpty() && random.nextInt(4) == 0;
      int id = known ? new ArrayList<>(positions.keySet()).get(random.nextInt(positions.size())) : i;
      long time = positions.computeIfAbsent(id, k -> (long) random.nextInt(times));
      if (known && random.nextInt(2) == 0) {
        // The record is sent again as it was.
        made.add(made.stream().filter(v -> v.id()[0] == bytes(id)[0] && v.id()[1] == bytes(id)[1]).findFirst().orElseThrow());
        continue;
      }
      if (known && !revisions) {
        continue;
      }
      byte[] rev = revisions ? bytes(revs.merge(id, 1, Integer::sum)) : new byte[0];
      int kind = random.nextInt(10);
      if (known) {
        // The record is revised as by a join: the old row is retracted and mostly replaced by a new one of the same revision.
        made.add(new Version(Version.RETRACT, time, i, bytes(id), rev, bytes(i)));
        if (kind < 3) {
          continue;
        }
      }
      int op = deletes && kind == 9 ? Version.DELETE : Version.PUT;
      made.add(new Version(op, time, i, bytes(id), rev, bytes(i)));
    }
    return made;
  }

  /** Returns two inputs in a random mixture, each in its own order. */
  static List<Arrival> mix(Random random, List<Version> lefts, int left, List<Version> rights, int right) {
    List<Arrival> mixed = new ArrayList<>();
    int l = left;
    int r = right;
    while (l < lefts.size() || r < rights.size()) {
      boolean takeRight = l == lefts.size() || (r < rights.size() && random.nextBoolean());
      mixed.add(takeRight ? new Arrival(true, rights.get(r), r) : new Arrival(false, lefts.get(l), l));
      r += takeRight ? 1 : 0;
      l += takeRight ? 0 : 1;
    }
    return mixed;
  }

  /** Returns inputs with ingestion times, which rise within each input. A record that is sent again keeps its time. */
  static List<List<Version>> ingested(Random random, List<List<Version>> sides) {
    List<List<Version>> stamped = new ArrayList<>();
    for (List<Version> side : sides) {
      Map<Version, Version> known = new IdentityHashMap<>();
      List<Version> made = new ArrayList<>();
      long now = 0;
      for (Version version : side) {
        now += random.nextInt(3);
        long moment = now;
        made.add(known.computeIfAbsent(version, v -> new Version(v.op(), v.time(), moment, v.id(), v.rev(), v.row())));
      }
      stamped.add(made);
    }
    return stamped;
  }

  /** Returns the input of which a record is read next: any, but of the first {@code ordered} inputs only that with the oldest record. */
  static int next(Random random, int ordered, List<List<Version>> sides, int[] read) {
    int side = random.nextInt(sides.size());
    int next = -1;
    for (int i = 0; i < sides.size(); i++, side = (side + 1) % sides.size()) {
      if (read[side] < sides.get(side).size()) {
        boolean both = side < ordered && next < ordered;
        boolean older = next >= 0 && both && sides.get(side).get(read[side]).ingested() < sides.get(next).get(read[next]).ingested();
        next = next < 0 || older ? side : next;
      }
    }
    return next;
  }

  /** Returns the records that had been ingested by a moment. */
  static List<Version> known(List<Version> versions, long moment) {
    return new ArrayList<>(versions.stream().filter(version -> version.ingested() <= moment).toList());
  }

  /** Returns the moments at which a record of an input was ingested. */
  static Set<Long> moments(List<List<Version>> sides) {
    Set<Long> moments = new TreeSet<>();
    sides.forEach(side -> side.forEach(version -> moments.add(version.ingested())));
    return moments;
  }

  /** Returns whether inputs were read as far as in another attempt. */
  static boolean reached(int[] read, int[] before) {
    for (int side = 0; side < read.length; side++) {
      if (read[side] < before[side]) {
        return false;
      }
    }
    return true;
  }

  /**
   * Returns the records that a reader of one group only takes for true although they aren't: the row is elsewhere, nowhere, or another one.
   *
   * <p>A shard of an index that is divided by keys is such a reader.
   */
  static List<Version> astray(List<Version> sent, ToIntFunction<Version> group) {
    Map<String, Version> newest = newest(sent);
    Map<Integer, List<Version>> groups = new HashMap<>();
    sent.forEach(version -> groups.computeIfAbsent(group.applyAsInt(version), key -> new ArrayList<>()).add(version));
    List<Version> astray = new ArrayList<>();
    groups.forEach((key, heard) -> newest(heard).forEach((id, version) -> {
      Version now = newest.get(id);
      boolean here = group.applyAsInt(now) == key && now.op() == version.op() && Arrays.equals(now.rev(), version.rev());
      if (version.op() != Version.RETRACT && !here) {
        astray.add(version);
      }
    }));
    return astray;
  }

  /** Returns the newest revision of each identity. */
  private static Map<String, Version> newest(List<Version> sent) {
    Map<String, Version> newest = new HashMap<>();
    for (Version version : sent) {
      newest.merge(Arrays.toString(version.id()), version, (old, candidate) -> candidate.replaces(old) ? candidate : old);
    }
    return newest;
  }

  static byte[] bytes(int number) {
    return new byte[] {(byte) (number >> 8), (byte) number};
  }

  static byte[] join(byte[] first, byte... then) {
    byte[] both = Arrays.copyOf(first, first.length + then.length);
    System.arraycopy(then, 0, both, first.length, then.length);
    return both;
  }

  /** Pages in memory, which can be copied like a checkpoint. */
  static final class Memory implements SortedPages.Store {
    final Map<Long, byte[]> pages = new HashMap<>();
    long accesses;

    Memory copy() {
      Memory copy = new Memory();
      copy.pages.putAll(pages);
      return copy;
    }

    @Override
    public byte[] get(long page) {
      accesses++;
      return pages.get(page);
    }

    @Override
    public void put(long page, byte[] bytes) {
      accesses++;
      pages.put(page, bytes);
    }

    @Override
    public void remove(long page) {
      accesses++;
      pages.remove(page);
    }

    long bytes() {
      return pages.values().stream().mapToLong(page -> page.length).sum();
    }
  }

  static void check(boolean condition, String what, Object... details) {
    if (!condition) {
      throw new AssertionError(String.format(what, details));
    }
  }
}
