package io.caraway;

import static io.caraway.Traces.check;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import java.util.function.Consumer;

/**
 * Compares a join of two tables with a plain one, which joins at each time on its own. After a crash both sides are read again in another order.
 *
 * <p>A left row consists of its key and its join key, which may differ between versions and, if left records are revised, between revisions. The
 * right side is keyed by the join key.
 *
 * <p>Sometimes left rows come from a join of events, whose joined column is the join key, so that it may differ between attempts.
 */
final class TablesTest {
  private static final long FOREVER = Long.MAX_VALUE / 4;
  private static final int KEYS = 3;
  private static final int RIGHT = 2;
  private static final int LEADING = 3;
  // The instant of the restart is later than the ingestion of all records that the failed attempt read, and earlier than that of all others.
  private static final long RESTART = 1_000;
  private static final AsOfState.Rule LEADS = new AsOfState.Rule(FOREVER, -1, 0, true, false);

  /**
   * The parameters of a test.
   *
   * @param revised whether left records are revised
   * @param led whether left rows come from a join
   */
  private record Shape(AsOfState.Rule rule, boolean revised, boolean led) {
    boolean fansOut() {
      return revised || led;
    }
  }

  private TablesTest() {}

  static void run(int seed) {
    Random random = new Random(seed);
    AsOfState.Rule rule = new AsOfState.Rule(FOREVER, -1, 0, random.nextBoolean(), true);
    int times = 2 + random.nextInt(30);
    List<List<Version>> sides = new ArrayList<>();
    Shape shape = new Shape(rule, random.nextInt(3) > 0, random.nextInt(3) == 0);
    for (int side = 0; side <= LEADING; side++) {
      sides.add(records(random, side, times, shape.revised && side < RIGHT));
    }
    sides = Traces.ingested(random, sides);
    // The versions of a table's key are in one partition, so they may be in order although those of the right side aren't.
    int ordered = new int[] {0, RIGHT, sides.size()}[random.nextInt(3)];
    boolean inOrder = ordered == sides.size();
    Output sent = new Output(new ArrayList<>(), new ArrayList<>());
    Map<String, Traces.Memory> pages = new HashMap<>();
    int[] read = new int[sides.size()];
    int total = sides.stream().mapToInt(List::size).sum();
    int checkpoint = random.nextInt(total);
    for (int i = 0; i < checkpoint; i++) {
      step(shape, pages, null, sides, read, ordered, random, sent);
    }
    Map<String, Traces.Memory> failed = new HashMap<>();
    pages.forEach((name, memory) -> failed.put(name, memory.copy()));
    int[] readOn = read.clone();
    int crash = random.nextInt(total - checkpoint + 1);
    for (int i = 0; i < crash; i++) {
      step(shape, failed, null, sides, readOn, ordered, random, sent);
    }
    for (int side = 0; side < sides.size(); side++) {
      for (int offset = readOn[side]; offset < sides.get(side).size(); offset++) {
        Version later = sides.get(side).get(offset);
        sides.get(side).set(offset, later.knownFrom(RESTART + later.ingested()));
      }
    }
    // The first batch must read at least the records that were read before the crash.
    Replay[] replays = {new Replay(RESTART), new Replay(RESTART)};
    int i = checkpoint;
    while (!Traces.reached(read, readOn)) {
      step(shape, pages, replays, sides, read, ordered, random, sent);
      i++;
    }
    for (; i < total; i++) {
      step(shape, pages, null, sides, read, ordered, random, sent);
    }
    Map<String, String> expected = expected(shape, sides, times, Long.MAX_VALUE);
    Map<String, String> found = found(sent, times, Long.MAX_VALUE);
    check(found.equals(expected), "%s%nfound%n%s%nexpected%n%s", rule, found, expected);
    // The join also shows what was known if its sides are read in another order than that of their ingestion, unless left rows are corrected.
    if (inOrder || (!shape.fansOut() && ordered == RIGHT)) {
      for (long moment : Traces.moments(sides)) {
        Map<String, String> known = expected(shape, sides, times, moment);
        Map<String, String> shown = found(sent, times, moment);
        check(shown.equals(known), "%s, known at %d%nfound%n%s%nexpected%n%s", shape, moment, shown, known);
        if (inOrder) {
          Map<String, String> counted = counted(sent, known, moment);
          check(counted.equals(known), "%s, known at %d%ncounted%n%s%nexpected%n%s", shape, moment, counted, known);
        }
      }
    }
    // A reader of one group only must know the rows in it, and no others.
    List<String> astray = texts(Traces.astray(sent.aggregateInputs, TablesTest::group));
    check(astray.isEmpty(), "%s%nastray%n%s", shape, astray);
    Map<String, String> counted = counted(sent, expected, Long.MAX_VALUE);
    check(counted.equals(expected), "%s%ncounted%n%s%nexpected%n%s", shape, counted, expected);
  }

  /** Returns the rows that a plain join of what had been ingested by a moment has, by key and time. */
  private static Map<String, String> expected(Shape shape, List<List<Version>> sides, int times, long moment) {
    List<Version> lefts = Traces.known(sides.get(0), moment);
    lefts.addAll(Traces.known(sides.get(1), moment));
    if (shape.led) {
      lefts = plainlyLed(held(lefts), held(Traces.known(sides.get(LEADING), moment)));
    }
    Map<String, String> expected = new TreeMap<>();
    for (byte key = 0; key < KEYS; key++) {
      for (long time = -1; time <= times; time++) {
        expected.put(key + "@" + time, plain(shape.rule, held(lefts), held(Traces.known(sides.get(RIGHT), moment)), key, time));
      }
    }
    return expected;
  }

  private static Map<String, String> found(Output sent, int times, long moment) {
    List<Version> output = held(Traces.known(sent.joined.stream().map(TablesTest::version).toList(), moment));
    Map<String, String> found = new TreeMap<>();
    for (byte key = 0; key < KEYS; key++) {
      for (long time = -1; time <= times; time++) {
        Version shown = at(output, key, time);
        found.put(key + "@" + time, shown == null ? "none" : shown.time() + Arrays.toString(shown.row()));
      }
    }
    return found;
  }

  private static Map<String, String> counted(Output sent, Map<String, String> expected, long moment) {
    Map<String, String> counted = new TreeMap<>();
    List<Version> aggregateInputs = held(Traces.known(sent.aggregateInputs, moment));
    expected.keySet().forEach(position -> counted.put(position, counted(aggregateInputs, position)));
    return counted;
  }

  /** The records that were sent: joined rows, and their aggregate inputs for an aggregate over them. */
  private record Output(List<AsOfState.Joined> joined, List<Version> aggregateInputs) {}

  /** Returns the rows that an aggregate counts at a time: those that have begun and not ended. */
  private static String counted(List<Version> aggregateInputs, String position) {
    String[] at = position.split("@");
    Map<String, String> open = new TreeMap<>();
    for (Version version : aggregateInputs) {
      if (version.row()[0] == Byte.parseByte(at[0]) && version.time() <= Long.parseLong(at[1])) {
        String of = Arrays.toString(Arrays.copyOf(version.id(), version.id().length - 1));
        boolean begins = version.op() == Version.PUT;
        open.merge(of, begins ? version.time() + Arrays.toString(version.row()) : "", (one, other) -> "");
      }
    }
    open.values().removeIf(String::isEmpty);
    return open.isEmpty() ? "none" : String.join(" and ", open.values());
  }

  /** Returns the group of a joined row in the aggregate, which depends on both sides. */
  private static int group(Version joined) {
    return (joined.row()[2] + joined.row()[joined.row().length - 1] & 0xff) % 3;
  }

  private static List<String> texts(List<Version> versions) {
    return versions.stream().map(v -> String.format("%s %s@%d %s", Arrays.toString(v.id()), v.op(), v.time(), Arrays.toString(v.row()))).sorted().toList();
  }

  /** Returns records of one partition, some of them sent again, or moved to another time, key and join key, or retracted. */
  private static List<Version> records(Random random, int side, int times, boolean revised) {
    List<Version> made = new ArrayList<>();
    for (int i = 0; i < 20; i++) {
      boolean again = !made.isEmpty() && random.nextInt(revised ? 2 : 4) == 0;
      Version known = again ? made.get(random.nextInt(made.size())) : null;
      if (again && (!revised || random.nextInt(3) == 0)) {
        made.add(known);
        continue;
      }
      byte[] row = {(byte) random.nextInt(KEYS), (byte) random.nextInt(3), (byte) i};
      int op = random.nextInt(5) == 0 ? Version.DELETE : Version.PUT;
      byte[] id = again ? known.id() : new byte[] {(byte) i, (byte) side};
      byte[] rev = revised ? new byte[] {0, (byte) i} : new byte[0];
      if (again) {
        // A retraction has the time and row of the newest revision of its record.
        Version held = known;
        for (Version other : made) {
          held = Arrays.equals(other.id(), id) && other.replaces(held) ? other : held;
        }
        made.add(new Version(Version.RETRACT, held.time(), 0, id, rev, held.row()));
      }
      if (!again || random.nextInt(3) > 0) {
        made.add(new Version(op, random.nextInt(times), 0, id, rev, row));
      }
    }
    return made;
  }

  private static void step(
      Shape shape, Map<String, Traces.Memory> pages, Replay[] replays, List<List<Version>> sides, int[] read, int ordered, Random random,
      Output sent) {
    int side = Traces.next(random, ordered, sides, read);
    int offset = read[side]++;
    int known = sent.joined.size();
    step(shape, pages, replays, side, sides.get(side).get(offset), offset, sent.joined);
    for (AsOfState.Joined joined : sent.joined.subList(known, sent.joined.size())) {
      Version row = version(joined);
      SortedPages counted = new SortedPages(pages.computeIfAbsent("counted", n -> new Traces.Memory()));
      AdjacentRowState.Rule rule = new AdjacentRowState.Rule(AdjacentRowState.Kind.AGGREGATE_INPUTS, 0, FOREVER);
      AdjacentRowState state = new AdjacentRowState(rule, Slice.of(counted, new byte[] {row.row()[0]}), new MaxEventTime(() -> 0, Traces.SETTLE_MS));
      state.version(row, part -> sent.aggregateInputs.add(part.version()));
      counted.flush();
    }
  }

  private static void step(
      Shape shape, Map<String, Traces.Memory> pages, Replay[] replays, int side, Version version, int offset, List<AsOfState.Joined> sent) {
    if (side == RIGHT) {
      joined(shape, pages, replays, version.row()[0], (asOf, tables) -> {
        if (asOf.right(version, offset, sent::add)) {
          tables.right(version, sent::add);
        }
      });
    } else if (!shape.led) {
      if (side < RIGHT) {
        left(shape, pages, replays, version, sent);
      }
    } else {
      List<AsOfState.Joined> led = new ArrayList<>();
      boolean leads = side == LEADING;
      byte[] key = {version.row()[leads ? 0 : 1]};
      opened(pages, "first", key[0], slices -> {
        MaxEventTime maxEventTime = new MaxEventTime(() -> 0, Traces.SETTLE_MS);
        Replay.Arrivals replayed = replays == null ? null : replays[0].of(key);
        AsOfState state = new AsOfState(LEADS, slices.get(0), slices.get(1), maxEventTime, maxEventTime, replayed);
        if (leads) {
          state.right(version, offset, led::add);
        } else {
          state.left(version, led::add);
        }
      });
      for (AsOfState.Joined one : led) {
        Version row = one.left();
        left(shape, pages, replays, new Version(one.op(), row.time(), row.ingested(), row.id(), one.rev(), led(row.row(), one.right())), sent);
      }
    }
  }

  /** Returns a left row with the column of the join of events, which is its join key from there on. */
  private static byte[] led(byte[] row, byte[] right) {
    return new byte[] {row[0], right == null ? -1 : (byte) (right[2] % 3), row[2]};
  }

  private static List<Version> plainlyLed(List<Version> lefts, List<Version> leading) {
    List<Version> made = new ArrayList<>();
    for (Version left : lefts) {
      Version match = at(leading, left.row()[1], left.time());
      if (match != null) {
        made.add(new Version(left.op(), left.time(), 0, left.id(), left.rev(), led(left.row(), match.row())));
      }
    }
    return made;
  }

  private static void left(
      Shape shape, Map<String, Traces.Memory> pages, Replay[] replays, Version version, List<AsOfState.Joined> sent) {
    SortedPages versions = new SortedPages(pages.computeIfAbsent("versions", n -> new Traces.Memory()));
    SortedPages fanOut = new SortedPages(pages.computeIfAbsent("fan-out", n -> new Traces.Memory()));
    byte[] table = {version.row()[0]};
    List<Version> events = new ArrayList<>();
    List<VersionFanOut.Copy> fannedOut = new ArrayList<>();
    AdjacentRowState.Rule changes = new AdjacentRowState.Rule(AdjacentRowState.Kind.TABLE, 0, FOREVER);
    MaxEventTime maxEventTime = new MaxEventTime(() -> 0, Traces.SETTLE_MS);
    AdjacentRowState state = new AdjacentRowState(changes, Slice.of(versions, table), maxEventTime);
    boolean isNew = state.version(version, part -> {
      if (!shape.fansOut() || part.which() == AdjacentRowState.BEGIN) {
        events.add(part.version());
      }
    });
    if (shape.fansOut()) {
      byte[] at = {version.row()[1]};
      new VersionFanOut(Slice.of(versions, table), Slice.of(fanOut, table)).version(version, at, isNew, fannedOut::add);
    }
    versions.flush();
    fanOut.flush();
    for (Version event : events) {
      joined(shape, pages, replays, event.row()[1], (asOf, tables) -> {
        if (AdjacentRowState.begins(event.id())) {
          asOf.left(event, sent::add);
        }
        if (!shape.fansOut()) {
          tables.left(table, event, sent::add);
        }
      });
    }
    for (VersionFanOut.Copy one : fannedOut) {
      joined(shape, pages, replays, one.joinKey()[0], (asOf, tables) -> tables.left(table, one.version(), sent::add));
    }
  }

  private interface Use {
    void of(AsOfState asOf, TableState tables);
  }

  private static void joined(
      Shape shape, Map<String, Traces.Memory> pages, Replay[] replays, byte key, Use use) {
    opened(pages, "second", key, slices -> {
      MaxEventTime maxEventTime = new MaxEventTime(() -> 0, Traces.SETTLE_MS);
      Replay.Arrivals replayed = replays == null ? null : replays[1].of(new byte[] {key});
      use.of(
          new AsOfState(shape.rule, slices.get(0), slices.get(1), maxEventTime, maxEventTime, replayed),
          new TableState(shape.rule, slices.get(2), slices.get(1), shape.fansOut(), maxEventTime, replayed));
    });
  }

  /** Opens the state of an operator for a key: left rows, right rows, tables. */
  private static void opened(Map<String, Traces.Memory> pages, String operator, byte key, Consumer<List<Slice>> use) {
    List<SortedPages> trees = new ArrayList<>();
    for (String name : List.of("lefts", "rights", "tables")) {
      trees.add(new SortedPages(pages.computeIfAbsent(operator + name, n -> new Traces.Memory())));
    }
    use.accept(trees.stream().map(tree -> Slice.of(tree, new byte[] {key})).toList());
    trees.forEach(SortedPages::flush);
  }

  private static Version version(AsOfState.Joined joined) {
    Version left = joined.left();
    byte[] row = Traces.join(left.row(), joined.right() == null ? new byte[] {-1} : joined.right());
    return new Version(joined.op(), left.time(), left.ingested(), left.id(), joined.rev(), row);
  }

  /** Returns the row of a key at a time, as an index finds it: the newest version, null if that is a delete. */
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

  private static String plain(AsOfState.Rule rule, List<Version> lefts, List<Version> rights, byte key, long time) {
    Version left = at(lefts, key, time);
    Version right = left == null ? null : at(rights, left.row()[1], time);
    if (left == null || (right == null && rule.inner())) {
      return "none";
    }
    long begin = Math.max(left.time(), right == null ? lastEnd(rights, left.row()[1], time) : right.time());
    return begin + Arrays.toString(Traces.join(left.row(), right == null ? new byte[] {-1} : right.row()));
  }

  /** Returns the time of the last delete, up to {@code time}, that ended a row of a key. */
  private static long lastEnd(List<Version> rights, byte key, long time) {
    long end = time;
    for (long at = time; at >= -1; at--) {
      if (at(rights, key, at) != null) {
        return end;
      }
      end = at;
    }
    return Long.MIN_VALUE;
  }

  /** Returns for each identity the record that holds. */
  private static List<Version> held(List<Version> sent) {
    Map<String, Version> held = new HashMap<>();
    for (Version version : sent) {
      held.merge(Arrays.toString(version.id()), version, (old, candidate) -> candidate.replaces(old) ? candidate : old);
    }
    List<Version> result = new ArrayList<>(held.values());
    result.removeIf(version -> version.op() == Version.RETRACT);
    return result;
  }
}
