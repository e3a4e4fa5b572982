package io.caraway;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.function.Consumer;

/**
 * Compares two joins that follow each other with plain ones, over several kills, and counts the retractions that they send. The argument is a number
 * of seeds.
 *
 * <p>A left row consists of its key, the key of the first join and a number; the first join adds the key of the second one, so that this may differ
 * between attempts. The first join has a table or events on its left side; events are a table by their key behind it.
 */
public final class RestartsTest {
  private static final long FOREVER = Long.MAX_VALUE / 4;
  private static final byte[] NONE = {-1, -1};
  // The positions of the join keys, and of the last column, in a joined row.
  private static final int FIRST = 1;
  private static final int SECOND = 5;
  private static final int LAST = 7;

  /**
   * The parameters of a test.
   *
   * @param size the number of left rows and of changes of each table
   * @param keys the number of keys of each side
   * @param events whether the left rows of the first join are events
   * @param margin for how many records after a kill the job takes records for some that the failed attempt may have read
   */
  private record Shape(int[] size, int keys, int times, boolean events, boolean inner, int kills, int margin) {}

  private RestartsTest() {}

  public static void main(String[] args) {
    int seeds = Integer.parseInt(args[0]);
    for (int seed = 0; seed < seeds; seed++) {
      try {
        Random random = new Random(seed);
        int[] size = {20 + random.nextInt(20), 5 + random.nextInt(15), 5 + random.nextInt(15)};
        boolean events = random.nextBoolean();
        new Run(random, new Shape(size, 3, 2 + random.nextInt(30), events, random.nextBoolean(), 1 + random.nextInt(3), random.nextInt(30))).check();
      } catch (RuntimeException | AssertionError e) {
        throw new AssertionError("seed " + seed + ": " + e.getMessage(), e);
      }
    }
    for (boolean events : new boolean[] {false, true}) {
      new Run(new Random(1), new Shape(new int[] {200, 40, 20}, 5, 100, events, false, 2, 1_000)).count();
    }
    System.out.println("ok " + seeds);
  }

  /** A run of a job that is killed now and then, each time before its first checkpoint since the kill before. */
  private static final class Run {
    private final Random random;
    private final Shape shape;
    private final Stage one;
    private final Stage two;
    private final List<List<Version>> sides = new ArrayList<>();
    private final List<Version> sent = new ArrayList<>();

    Run(Random random, Shape shape) {
      this.random = random;
      this.shape = shape;
      one = new Stage("one", FIRST, false, new AsOfState.Rule(FOREVER, -1, 0, shape.inner, !shape.events));
      two = new Stage("two", SECOND, true, new AsOfState.Rule(FOREVER, -1, 0, shape.inner, true));
      // A record's number among all records is the moment of its ingestion.
      int[] order = order();
      Map<String, Traces.Memory> pages = new HashMap<>();
      int[] read = new int[3];
      for (int kill = 1; kill <= shape.kills; kill++) {
        Map<String, Traces.Memory> failed = new HashMap<>();
        pages.forEach((name, memory) -> failed.put(name, memory.copy()));
        int[] readOn = read.clone();
        int crash = order.length * kill / (shape.kills + 1);
        for (int i = total(readOn); i < crash; i++) {
          step(order[i], failed, new Replay[2], readOn);
        }
        // The first batch reads all that was read before the kill, in another order, and some more.
        Replay[] replays = {new Replay(crash + shape.margin), new Replay(crash + shape.margin)};
        while (total(read) < crash) {
          int side = random.nextInt(3);
          if (read[side] < readOn[side]) {
            step(side, pages, replays, read);
          }
        }
        int until = crash + random.nextInt(order.length * (kill + 1) / (shape.kills + 1) - crash);
        while (total(read) < until) {
          step(order[total(read)], pages, replays, read);
        }
      }
      while (total(read) < order.length) {
        step(order[total(read)], pages, new Replay[2], read);
      }
    }

    /** Makes the records of all sides, and returns the sides in the order in which their records come. */
    private int[] order() {
      int[] left = shape.size.clone();
      int[] order = new int[total(left)];
      for (int side = 0; side < 3; side++) {
        sides.add(new ArrayList<>());
      }
      for (int i = 0; i < order.length; i++) {
        int at = random.nextInt(total(left));
        int side = at < left[0] ? 0 : at < left[0] + left[1] ? 1 : 2;
        left[side]--;
        order[i] = side;
        byte[] number = Traces.bytes(i);
        byte[] row = {(byte) random.nextInt(shape.keys), (byte) random.nextInt(shape.keys)};
        boolean deletes = random.nextInt(8) == 0 && !(side == 0 && shape.events);
        byte[] id = {number[0], number[1], (byte) side};
        sides.get(side).add(new Version(
            deletes ? Version.DELETE : Version.PUT, random.nextInt(shape.times), i, id, new byte[0], side == 0 ? Traces.join(row, number) : row));
      }
      return order;
    }

    private void step(int side, Map<String, Traces.Memory> pages, Replay[] replays, int[] read) {
      int offset = read[side]++;
      Version version = sides.get(side).get(offset);
      Consumer<Version> then = made -> two.left(pages, replays[1], made, sent::add);
      switch (side) {
        case 0 -> one.left(pages, replays[0], version, then);
        case 1 -> one.right(pages, replays[0], version, offset, then);
        default -> two.right(pages, replays[1], version, offset, sent::add);
      }
    }

    /** Checks that joined rows are those of a plain join, and that a reader of one group of aggregate inputs knows those of its group only. */
    private void check() {
      Map<String, Version> held = new HashMap<>();
      sent.forEach(made -> held.merge(Arrays.toString(made.id()), made, (old, candidate) -> candidate.replaces(old) ? candidate : old));
      List<Version> rows = new ArrayList<>(held.values());
      rows.removeIf(row -> row.op() == Version.RETRACT);
      for (byte key = 0; key < shape.keys; key++) {
        for (long time = -1; time <= shape.times; time++) {
          Version shown = at(rows, key, time);
          byte[] expected = plain(key, time);
          Traces.check(
              Arrays.equals(shown == null ? null : shown.row(), expected), "%s, %d@%d: found %s, expected %s", shape, key, time,
              shown == null ? null : Arrays.toString(shown.row()), Arrays.toString(expected));
        }
      }
      List<Version> aggregateInputs = new ArrayList<>();
      Traces.Memory memory = new Traces.Memory();
      AdjacentRowState.Rule rule = new AdjacentRowState.Rule(AdjacentRowState.Kind.AGGREGATE_INPUTS, 0, FOREVER);
      for (Version row : sent) {
        SortedPages pages = new SortedPages(memory);
        new AdjacentRowState(rule, Slice.of(pages, new byte[] {row.row()[0]}), settling()).version(row, part -> aggregateInputs.add(part.version()));
        pages.flush();
      }
      List<Version> astray = Traces.astray(aggregateInputs, row -> (row.row()[SECOND] + row.row()[LAST] & 0xff) % 3);
      Traces.check(astray.isEmpty(), "%s: %d astray", shape, astray.size());
    }

    /** Checks that hardly a retraction is sent twice. Those that an operator sends without a restart, too, may be. */
    private void count() {
      check();
      Set<String> distinct = new HashSet<>();
      List<Version> retractions = sent.stream().filter(row -> row.op() == Version.RETRACT).toList();
      retractions.forEach(row -> distinct.add(Arrays.toString(row.id()) + row.time() + Arrays.toString(row.rev()) + Arrays.toString(row.row())));
      System.err.printf(
          "%d retractions, %d distinct, %.1f for each record%n", retractions.size(), distinct.size(),
          1.0 * retractions.size() / total(shape.size));
      Traces.check(retractions.size() < 1.25 * distinct.size(), "%d retractions, only %d distinct", retractions.size(), distinct.size());
    }

    private byte[] plain(byte key, long time) {
      Version left = at(sides.get(0), key, time);
      Version first = left == null ? null : at(sides.get(1), left.row()[FIRST], shape.events ? left.time() : time);
      if (shape.events && shape.inner && left != null && first == null) {
        // An event without a match is no version of its key, so an earlier one still holds.
        List<Version> matched = new ArrayList<>(sides.get(0));
        matched.removeIf(event -> at(sides.get(1), event.row()[FIRST], event.time()) == null);
        left = at(matched, key, time);
        first = left == null ? null : at(sides.get(1), left.row()[FIRST], left.time());
      }
      if (left == null || (first == null && shape.inner)) {
        return null;
      }
      byte[] row = Traces.join(left.row(), first == null ? NONE : first.row());
      Version second = at(sides.get(2), row[SECOND], time);
      return second == null && shape.inner ? null : Traces.join(row, second == null ? NONE : second.row());
    }
  }

  /** A join, and the steps before it that turn its left side into records for each join key if it is a table. */
  private record Stage(String name, int joinAt, boolean fansOut, AsOfState.Rule rule) {
    private interface Use {
      void of(AsOfState asOf, TableState tables, Consumer<AsOfState.Joined> sink);
    }

    private void left(Map<String, Traces.Memory> pages, Replay replay, Version version, Consumer<Version> out) {
      if (!rule.keyed()) {
        joined(pages, replay, version.row()[joinAt], out, (asOf, tables, sink) -> asOf.left(version, sink));
        return;
      }
      SortedPages versions = open(pages, "versions");
      SortedPages fanOut = open(pages, "fan-out");
      byte[] table = {version.row()[0]};
      List<Version> events = new ArrayList<>();
      List<VersionFanOut.Copy> copies = new ArrayList<>();
      AdjacentRowState.Rule changes = new AdjacentRowState.Rule(AdjacentRowState.Kind.TABLE, 0, FOREVER);
      boolean isNew = new AdjacentRowState(changes, Slice.of(versions, table), settling()).version(version, part -> {
        if (!fansOut || part.which() == AdjacentRowState.BEGIN) {
          events.add(part.version());
        }
      });
      if (fansOut) {
        byte[] at = {version.row()[joinAt]};
        new VersionFanOut(Slice.of(versions, table), Slice.of(fanOut, table)).version(version, at, isNew, copies::add);
      }
      versions.flush();
      fanOut.flush();
      for (Version event : events) {
        joined(pages, replay, event.row()[joinAt], out, (asOf, tables, sink) -> {
          if (AdjacentRowState.begins(event.id())) {
            asOf.left(event, sink);
          }
          if (!fansOut) {
            tables.left(table, event, sink);
          }
        });
      }
      for (VersionFanOut.Copy copy : copies) {
        joined(pages, replay, copy.joinKey()[0], out, (asOf, tables, sink) -> tables.left(table, copy.version(), sink));
      }
    }

    private void right(Map<String, Traces.Memory> pages, Replay replay, Version version, long offset, Consumer<Version> out) {
      joined(pages, replay, version.row()[0], out, (asOf, tables, sink) -> {
        if (asOf.right(version, offset, sink) && rule.keyed()) {
          tables.right(version, sink);
        }
      });
    }

    private void joined(Map<String, Traces.Memory> pages, Replay replay, byte joinKey, Consumer<Version> out, Use use) {
      byte[] key = {joinKey};
      Replay.Arrivals replayed = replay == null ? null : replay.of(key);
      List<SortedPages> trees = List.of(open(pages, "lefts"), open(pages, "rights"), open(pages, "tables"));
      List<Slice> slices = trees.stream().map(tree -> Slice.of(tree, key)).toList();
      List<AsOfState.Joined> made = new ArrayList<>();
      use.of(
          new AsOfState(rule, slices.get(0), slices.get(1), settling(), settling(), replayed),
          new TableState(rule, slices.get(2), slices.get(1), fansOut, settling(), replayed), made::add);
      trees.forEach(SortedPages::flush);
      for (AsOfState.Joined one : made) {
        Version left = one.left();
        byte[] row = Traces.join(left.row(), one.right() == null ? NONE : one.right());
        out.accept(new Version(one.op(), left.time(), left.ingested(), left.id(), one.rev(), row));
      }
    }

    private SortedPages open(Map<String, Traces.Memory> pages, String tree) {
      return new SortedPages(pages.computeIfAbsent(name + tree, n -> new Traces.Memory()));
    }
  }

  private static MaxEventTime settling() {
    return new MaxEventTime(() -> 0, Traces.SETTLE_MS);
  }

  private static int total(int[] counts) {
    return Arrays.stream(counts).sum();
  }

  /** Returns the row of a key at a time: the newest version, null if that is a delete. */
  private static Version at(List<Version> versions, byte key, long time) {
    Version newest = null;
    for (Version version : versions) {
      boolean candidate = version.row()[0] == key && version.time() <= time;
      if (candidate && (newest == null || Arrays.compareUnsigned(version.key(), newest.key()) > 0)) {
        newest = version;
      }
    }
    return newest == null || newest.op() == Version.DELETE ? null : newest;
  }
}
