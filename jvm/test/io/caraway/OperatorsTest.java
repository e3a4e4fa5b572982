package io.caraway;

import static io.caraway.Traces.check;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.EnumMap;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import java.util.function.Consumer;

/** Compares each operator with a plain one, over generated traces. The argument is a number of seeds; a failure's message has its seed. */
public final class OperatorsTest {
  private static final long FOREVER = Long.MAX_VALUE / 4;
  private static final byte[] KEY = {1, 2};

  private OperatorsTest() {}

  /** The content of an output record. */
  private record Out(String id, byte[] rev, int op, long time, String content, long known) {}

  public static void main(String[] args) {
    int seeds = Integer.parseInt(args[0]);
    for (int seed = 0; seed < seeds; seed++) {
      try {
        pages(seed);
        trees(seed);
        join(seed);
        joins(seed);
        AdjacentRowsTest.run(seed);
        AdjacentRowsTest.regrouped(seed);
        TablesTest.run(seed);
      } catch (RuntimeException | AssertionError e) {
        throw new AssertionError("seed " + seed + ": " + e.getMessage(), e);
      }
    }
    // With these seeds an aggregate input after a join of tables once ended too late, after a crash.
    for (int seed : new int[] {263, 1368, 1706, 1983, 2300, 3664, 4236, 4922}) {
      TablesTest.run(seed);
    }
    // With these seeds what was known at a time was lost, because a revision that was ingested together with the one before it counted as a
    // correction.
    for (int seed : new int[] {1710, 2024}) {
      TablesTest.run(seed);
    }
    // With these seeds an aggregate input of a failed attempt stayed in the group of a match that its row had only there. The row was then sent with
    // a revision that is known only since the restart, so the join took it for a new row, and didn't retract its other matches.
    for (int seed : new int[] {1822, 4223, 4657, 32676, 33013, 34131, 200559, 205164, 209065}) {
      TablesTest.run(seed);
    }
    // With these seeds a wrong row was shown as known at a time, because a right row led to a retraction that was known before the right row.
    for (int seed : new int[] {202288, 204197}) {
      TablesTest.run(seed);
    }
    // With this seed rows less than the gap of a session apart were kept, if it was between the seconds in which they lie.
    AdjacentRowsTest.run(56);
    retractedRows(5_000);
    // Without many seeds a tenth of the rows has to do: a hundred times the bounds that are checked.
    int share = seeds < 100 ? 10 : 1;
    hotKey(300_000 / share);
    for (AdjacentRowState.Kind kind : AdjacentRowState.Kind.values()) {
      hotAdjacentRows(kind, 30_000 / share);
    }
    // 10,000 rows are five periods in which a max event time settles, and the bound is that of two and a horizon.
    int endless = seeds < 100 ? 10_000 : 30_000;
    bounded(1, endless);
    bounded(300, endless);
    bounded(0, endless);
    System.out.println("ok " + seeds);
  }

  /** Compares the tree, written and opened again now and then, with a TreeMap. */
  private static void pages(int seed) {
    Random random = new Random(seed);
    Traces.Memory memory = new Traces.Memory();
    SortedPages pages = new SortedPages(memory);
    TreeMap<byte[], byte[]> plain = new TreeMap<>(Arrays::compareUnsigned);
    int space = 1 + random.nextInt(3_000);
    for (int i = 0; i < 2_000; i++) {
      byte[] key = Version.at(random.nextInt(space) - space / 2);
      switch (random.nextInt(12)) {
        case 0 -> {
          byte[] to = Version.at(random.nextInt(space));
          if (random.nextInt(20) == 0 && Arrays.compareUnsigned(key, to) < 0) {
            byte[] from = random.nextBoolean() ? new byte[0] : key;
            pages.remove(from, to);
            plain.subMap(from, to).clear();
          }
        }
        case 1 -> same(pages.lower(key), plain.lowerEntry(key));
        case 2 -> same(pages.higher(key), plain.higherEntry(key));
        case 3 -> check(Arrays.equals(pages.get(key), plain.get(key)), "get");
        case 4 -> {
          byte[] to = Version.at(random.nextInt(space));
          List<SortedPages.Entry> range = pages.range(key, to);
          int at = 0;
          if (Arrays.compareUnsigned(key, to) < 0) {
            for (Map.Entry<byte[], byte[]> entry : plain.subMap(key, to).entrySet()) {
              same(range.get(at++), entry);
            }
          }
          check(at == range.size(), "range has %d entries, expected %d", range.size(), at);
        }
        case 5 -> {
          pages.flush();
          pages = new SortedPages(memory);
        }
        default -> {
          byte[] value = new byte[random.nextInt(400)];
          random.nextBytes(value);
          pages.put(key, value);
          plain.put(key, value);
        }
      }
    }
    pages.remove(new byte[0], Version.at(space));
    pages.flush();
    check(memory.pages.size() == 1, "%d pages of an empty tree", memory.pages.size());
  }

  /** Compares trees that stay open with plain maps: reads, writes and the memory for pages. */
  private static void trees(int seed) {
    Random random = new Random(seed);
    List<Traces.Memory> stored = new ArrayList<>();
    List<TreeMap<byte[], byte[]>> plain = new ArrayList<>();
    int buckets = 1 + random.nextInt(6);
    for (int bucket = 0; bucket < buckets; bucket++) {
      stored.add(new Traces.Memory());
      plain.add(new TreeMap<>(Arrays::compareUnsigned));
    }
    int[] current = {0};
    int most = 1 + random.nextInt(60_000);
    Trees trees = new Trees(() -> new SortedPages(stored.get(current[0])), () -> most);
    for (int i = 0; i < 600; i++) {
      if (random.nextInt(100) == 0) {
        // The task ends, and the next one starts from the written pages.
        trees = new Trees(() -> new SortedPages(stored.get(current[0])), () -> most);
      }
      current[0] = random.nextInt(buckets);
      TreeMap<byte[], byte[]> expected = plain.get(current[0]);
      SortedPages tree = trees.open(current[0]);
      byte[] key = Version.at(random.nextInt(300));
      same(tree.lower(key), expected.lowerEntry(key));
      if (random.nextInt(30) == 0) {
        byte[] from = Version.at(0);
        tree.remove(from, key);
        expected.subMap(from, key).clear();
      } else if (random.nextInt(4) > 0) {
        byte[] value = new byte[random.nextInt(300)];
        random.nextBytes(value);
        tree.put(key, value);
        expected.put(key, value);
      }
      trees.flush(tree);
      check(trees.held() <= most, "%d bytes are held, %d may be", trees.held(), most);
      check(trees.open(current[0]).range(new byte[0], Version.at(300)).size() == expected.size(), "other entries in the open tree");
    }
    for (int bucket = 0; bucket < buckets; bucket++) {
      List<SortedPages.Entry> found = new SortedPages(stored.get(bucket)).range(new byte[0], Version.at(300));
      check(found.size() == plain.get(bucket).size(), "%d entries are stored, expected %d", found.size(), plain.get(bucket).size());
      int at = 0;
      for (Map.Entry<byte[], byte[]> entry : plain.get(bucket).entrySet()) {
        same(found.get(at++), entry);
      }
    }
  }

  private static void same(SortedPages.Entry found, Map.Entry<byte[], byte[]> expected) {
    check((found == null) == (expected == null), "one is missing");
    if (found != null) {
      check(Arrays.equals(found.key(), expected.getKey()) && Arrays.equals(found.value(), expected.getValue()), "other entry");
    }
  }

  /** Compares the join with a nested loop, after one attempt, and after a crash and a second attempt in another order. */
  private static void join(int seed) {
    Random random = new Random(seed);
    int times = 1 + random.nextInt(60);
    boolean corrected = random.nextBoolean();
    List<Version> lefts = Traces.records(random, 80, times, false, corrected && random.nextBoolean());
    List<Version> rights = Traces.records(random, 60, times, true, corrected && random.nextBoolean());
    long low = random.nextBoolean() ? -1 : random.nextInt(20);
    AsOfState.Rule rule = new AsOfState.Rule(FOREVER, low, random.nextInt(3) * 5, random.nextBoolean(), false);
    List<Out> sent = new ArrayList<>();
    Traces.Memory leftPages = new Traces.Memory();
    Traces.Memory rightPages = new Traces.Memory();
    List<Traces.Arrival> arrivals = Traces.mix(random, lefts, 0, rights, 0);
    int checkpoint = random.nextInt(arrivals.size());
    int crash = checkpoint + random.nextInt(arrivals.size() - checkpoint);
    run(rule, leftPages, rightPages, arrivals.subList(0, checkpoint), sent);
    run(rule, leftPages.copy(), rightPages.copy(), arrivals.subList(checkpoint, crash), sent);
    int seenRights = (int) arrivals.subList(0, checkpoint).stream().filter(Traces.Arrival::right).count();
    List<Traces.Arrival> again = Traces.mix(random, lefts, checkpoint - seenRights, rights, seenRights);
    run(rule, leftPages, rightPages, again, sent);
    compare(held(sent), naiveJoin(rule, lefts, rights));
    if (!corrected) {
      // Whatever the order in which the sides were read, a reader finds what was known at each moment.
      for (long moment : Traces.moments(List.of(lefts, rights))) {
        List<Out> known = sent.stream().filter(out -> out.known <= moment).toList();
        compare(held(known), naiveJoin(rule, Traces.known(lefts, moment), Traces.known(rights, moment)));
      }
    }
  }

  private static void run(
      AsOfState.Rule rule, Traces.Memory leftPages, Traces.Memory rightPages, List<Traces.Arrival> arrivals, List<Out> sent) {
    MaxEventTime left = new MaxEventTime(() -> 0, Traces.SETTLE_MS);
    MaxEventTime right = new MaxEventTime(() -> 0, Traces.SETTLE_MS);
    Consumer<AsOfState.Joined> out = joined ->
        sent.add(
            new Out(
                text(joined.left().id()), joined.rev(), joined.op(), joined.left().time(),
                text(joined.left().row()) + "+" + text(joined.right()), joined.left().ingested()));
    for (Traces.Arrival arrival : arrivals) {
      SortedPages lefts = new SortedPages(leftPages);
      SortedPages rights = new SortedPages(rightPages);
      AsOfState state = new AsOfState(rule, Slice.of(lefts, KEY), Slice.of(rights, KEY), left, right, null);
      if (arrival.right()) {
        state.right(arrival.version(), arrival.offset(), out);
      } else {
        state.left(arrival.version(), out);
      }
      lefts.flush();
      rights.flush();
    }
  }

  /** Tests two joins in a chain, the second by a column of the first; after a crash each side is read again in another order. */
  private static void joins(int seed) {
    Random random = new Random(seed);
    int times = 1 + random.nextInt(60);
    List<List<Version>> sides =
        List.of(
            Traces.records(random, 60, times, false, random.nextBoolean()),
            Traces.records(random, 40, times, true, random.nextBoolean()),
            Traces.records(random, 60, times, true, random.nextBoolean()));
    AsOfState.Rule first = new AsOfState.Rule(FOREVER, random.nextBoolean() ? -1 : random.nextInt(20), 0, random.nextBoolean(), false);
    AsOfState.Rule second = new AsOfState.Rule(FOREVER, random.nextBoolean() ? -1 : random.nextInt(20), 0, random.nextBoolean(), false);
    List<Out> sent = new ArrayList<>();
    Map<String, Traces.Memory> pages = new HashMap<>();
    int[] read = new int[sides.size()];
    int total = sides.stream().mapToInt(List::size).sum();
    int checkpoint = random.nextInt(total);
    for (int i = 0; i < checkpoint; i++) {
      step(first, second, pages, sides, read, random, sent);
    }
    Map<String, Traces.Memory> failed = new HashMap<>();
    pages.forEach((name, memory) -> failed.put(name, memory.copy()));
    int[] readOn = read.clone();
    int crash = random.nextInt(total - checkpoint + 1);
    for (int i = 0; i < crash; i++) {
      step(first, second, failed, sides, readOn, random, sent);
    }
    for (int i = checkpoint; i < total; i++) {
      step(first, second, pages, sides, read, random, sent);
    }
    compare(held(sent), naiveJoins(first, second, sides));
  }

  /** Processes one record of any side. */
  private static void step(
      AsOfState.Rule first, AsOfState.Rule second, Map<String, Traces.Memory> pages, List<List<Version>> sides, int[] read,
      Random random, List<Out> sent) {
    int side = random.nextInt(sides.size());
    while (read[side] == sides.get(side).size()) {
      side = (side + 1) % sides.size();
    }
    int offset = read[side]++;
    Version version = sides.get(side).get(offset);
    Consumer<AsOfState.Joined> out = joined ->
        sent.add(
            new Out(
                text(joined.left().id()), joined.rev(), joined.op(), joined.left().time(),
                text(joined.left().row()) + "+" + text(joined.right()), joined.left().ingested()));
    if (side == 2) {
      at(second, pages, "second", parity(version.id()), state -> state.right(version, offset, out));
      return;
    }
    Consumer<AsOfState.Joined> on = joined -> {
      Version left = joined.left();
      byte[] row = (text(left.row()) + "+" + text(joined.right())).getBytes(StandardCharsets.UTF_8);
      Version next = new Version(joined.op(), left.time(), left.ingested(), left.id(), joined.rev(), row);
      at(second, pages, "second", parity(joined.right()), state -> state.left(next, out));
    };
    boolean right = side == 1;
    at(first, pages, "first", 0, state -> {
      if (right) {
        state.right(version, offset, on);
      } else {
        state.left(version, on);
      }
    });
  }

  private static void at(AsOfState.Rule rule, Map<String, Traces.Memory> pages, String name, int key, Consumer<AsOfState> use) {
    SortedPages lefts = new SortedPages(pages.computeIfAbsent(name + "/left", n -> new Traces.Memory()));
    SortedPages rights = new SortedPages(pages.computeIfAbsent(name + "/right", n -> new Traces.Memory()));
    // All keys are in one bucket.
    byte[] bytes = {(byte) key};
    use.accept(new AsOfState(rule, Slice.of(lefts, bytes), Slice.of(rights, bytes), new MaxEventTime(() -> 0, Traces.SETTLE_MS), new MaxEventTime(() -> 0, Traces.SETTLE_MS), null));
    lefts.flush();
    rights.flush();
  }

  /** Returns the key of the second join: from the identity of a right row, from the joined columns of a left row. */
  private static int parity(byte[] bytes) {
    return bytes == null ? 2 : bytes[bytes.length - 1] & 1;
  }

  private static Map<String, String> naiveJoins(AsOfState.Rule first, AsOfState.Rule second, List<List<Version>> sides) {
    Map<String, String> expected = new HashMap<>();
    for (Version left : newest(sides.get(0))) {
      byte[] found = naiveMatch(first, left, newest(sides.get(1)));
      List<Version> others = newest(sides.get(2));
      others.removeIf(other -> parity(other.id()) != parity(found));
      byte[] other = naiveMatch(second, left, others);
      boolean missing = (first.inner() && found == null) || (second.inner() && other == null);
      if (left.op() != Version.RETRACT && !missing) {
        String row = text((text(left.row()) + "+" + text(found)).getBytes(StandardCharsets.UTF_8));
        expected.put(text(left.id()), left.op() + "@" + left.time() + ":" + row + "+" + text(other));
      }
    }
    return expected;
  }

  private static byte[] naiveMatch(AsOfState.Rule rule, Version left, List<Version> rights) {
    Version match = null;
    for (Version right : rights) {
      boolean candidate = right.op() != Version.RETRACT && right.time() <= left.time() + rule.high();
      if (candidate && (match == null || Arrays.compareUnsigned(right.key(), match.key()) > 0)) {
        match = right;
      }
    }
    boolean tooOld = match != null && rule.low() >= 0 && match.time() < left.time() - rule.low();
    return match == null || match.op() == Version.DELETE || tooOld ? null : match.row();
  }

  private static Map<String, String> naiveJoin(AsOfState.Rule rule, List<Version> lefts, List<Version> rights) {
    Map<String, String> expected = new HashMap<>();
    for (Version left : newest(lefts)) {
      byte[] found = naiveMatch(rule, left, newest(rights));
      if (left.op() != Version.RETRACT && (found != null || !rule.inner())) {
        expected.put(text(left.id()), left.op() + "@" + left.time() + ":" + text(left.row()) + "+" + text(found));
      }
    }
    return expected;
  }

  /** Tests that each of very many rows of one key costs a few pages, not all of them. */
  private static void hotKey(int rows) {
    Traces.Memory leftPages = new Traces.Memory();
    Traces.Memory rightPages = new Traces.Memory();
    AsOfState.Rule rule = new AsOfState.Rule(FOREVER, -1, 0, false, false);
    MaxEventTime maxEventTime = new MaxEventTime(() -> 0, Traces.SETTLE_MS);
    long worst = 0;
    for (int i = 0; i < rows; i++) {
      long before = leftPages.accesses + rightPages.accesses;
      SortedPages lefts = new SortedPages(leftPages);
      SortedPages rights = new SortedPages(rightPages);
      AsOfState state = new AsOfState(rule, Slice.of(lefts, KEY), Slice.of(rights, KEY), maxEventTime, maxEventTime, null);
      byte[] id = ByteBuffer.allocate(12).putLong(i).array();
      // Now and then a late version corrects ten rows.
      Version row = new Version(1, i % 1_000 == 999 ? i - 10 : i, 0, id, new byte[0], new byte[60]);
      if (i % 2 == 0) {
        state.left(row, joined -> { });
      } else {
        state.right(row, i, joined -> { });
      }
      lefts.flush();
      rights.flush();
      worst = Math.max(worst, leftPages.accesses + rightPages.accesses - before);
    }
    check(worst <= 30, "a row cost %d pages", worst);
  }

  /** Tests the same for the operators on adjacent rows, with rows in order and now and then late ones. */
  private static void hotAdjacentRows(AdjacentRowState.Kind kind, int rows) {
    Traces.Memory memory = new Traces.Memory();
    MaxEventTime maxEventTime = new MaxEventTime(() -> 0, Traces.SETTLE_MS);
    long worst = 0;
    for (int i = 0; i < rows; i++) {
      long before = memory.accesses;
      SortedPages versions = new SortedPages(memory);
      byte[] id = ByteBuffer.allocate(12).putLong(i).array();
      Version row = new Version(1, i % 100 == 99 ? i / 2 : i, 0, id, new byte[0], new byte[60]);
      new AdjacentRowState(new AdjacentRowState.Rule(kind, 1_000, FOREVER), Slice.of(versions, KEY), maxEventTime).version(row, part -> { });
      versions.flush();
      worst = Math.max(worst, memory.accesses - before);
    }
    check(worst <= 20, "a row of %s cost %d pages", kind, worst);
  }

  /** Tests that a step stores and reads a revision in which the step before lists very many retracted rows, such as those that a filter drops. */
  private static void retractedRows(int rows) {
    SortedPages pages = new SortedPages(new Traces.Memory());
    MaxEventTime maxEventTime = new MaxEventTime(() -> 0, Traces.SETTLE_MS);
    AdjacentRowState state = new AdjacentRowState(new AdjacentRowState.Rule(AdjacentRowState.Kind.FIRST, 0, FOREVER), Slice.of(pages, KEY), maxEventTime);
    for (int i = 0; i < rows; i++) {
      state.version(new Version(Version.RETRACT, i, 0, ByteBuffer.allocate(12).putLong(i).array(), new byte[] {1}, new byte[0]), part -> { });
    }
    List<Version> sent = new ArrayList<>();
    state.version(new Version(Version.PUT, rows, 0, ByteBuffer.allocate(12).putLong(rows).array(), new byte[] {1}, new byte[] {7}), part -> sent.add(part.version()));
    Version last = sent.get(sent.size() - 1);
    Version read = Version.decode(last.key(), last.encode());
    check(Arrays.equals(last.rev(), read.rev()) && Arrays.equals(last.row(), read.row()), "a revision of %d bytes is stored as %d", last.rev().length, read.rev().length);
  }

  /** Tests that an endless stream keeps only the state of its horizon, and of the time in which a max event time settles. */
  private static void bounded(int keys, int rows) {
    long[] clock = {0};
    MaxEventTime left = new MaxEventTime(() -> clock[0], Traces.SETTLE_MS);
    MaxEventTime right = new MaxEventTime(() -> clock[0], Traces.SETTLE_MS);
    Traces.Memory leftPages = new Traces.Memory();
    Traces.Memory rightPages = new Traces.Memory();
    Traces.Memory tablePages = new Traces.Memory();
    Map<AdjacentRowState.Kind, Traces.Memory> versions = new EnumMap<>(AdjacentRowState.Kind.class);
    long step = 1_000;
    long horizon = 1_000 * step;
    AsOfState.Rule rule = new AsOfState.Rule(horizon, -1, 0, false, false);
    Pruning ofLefts = new Pruning(1, Pruning.Needed.NOTHING, () -> AsOfState.leftBound(rule, left, right));
    Pruning ofRights = new Pruning(1, Pruning.Needed.HOLDING, () -> AsOfState.rightBound(rule, left));
    Pruning ofTables = new Pruning(2, Pruning.Needed.HOLDING, () -> AsOfState.rightBound(rule, left));
    AdjacentRowState.Rule table = new AdjacentRowState.Rule(AdjacentRowState.Kind.TABLE, 0, horizon);
    Traces.Memory fannedPages = new Traces.Memory();
    Traces.Memory standPages = new Traces.Memory();
    // A settle period has 2,000 records. At most two periods and a horizon are kept, at 200 bytes a record, and as much again because pages are half
    // full. Windows of 10 us are shorter than the time between two records.
    int settle = 2_000;
    long most = (2 * settle + horizon / step) * 200 * 2;
    for (int i = 0; i < rows; i++) {
      clock[0] += Traces.SETTLE_MS / settle;
      byte[] id = ByteBuffer.allocate(12).putLong(i).array();
      // Few keys come again and again. Each of many keys comes, is deleted and never comes again.
      byte[] key = Version.at(keys > 0 ? i % keys : i / 2);
      int op = keys > 0 || i % 2 == 0 ? Version.PUT : Version.DELETE;
      Version row = new Version(op, i * step, 0, id, new byte[0], new byte[50]);
      SortedPages lefts = new SortedPages(leftPages, ofLefts);
      SortedPages rights = new SortedPages(rightPages, ofRights);
      SortedPages tables = new SortedPages(tablePages, ofTables);
      AsOfState state = new AsOfState(rule, Slice.of(lefts, key), Slice.of(rights, key), left, right, null);
      state.left(row, joined -> { });
      state.right(row, i, joined -> { });
      new TableState(rule, Slice.of(tables, key), Slice.of(rights, key), true, left, null).left(key, row, joined -> { });
      // A key that comes again moves to other join keys, to which it never returns.
      byte[] at = Version.at(keys > 0 ? i / 100 : 0);
      SortedPages fanned = new SortedPages(fannedPages, AdjacentRowState.pruner(table, left));
      SortedPages stands = new SortedPages(standPages, VersionFanOut.pruner(horizon, left));
      boolean isNew = new AdjacentRowState(table, Slice.of(fanned, key), left).version(row, part -> { });
      new VersionFanOut(Slice.of(fanned, key), Slice.of(stands, key)).version(row, at, isNew, copy -> { });
      fanned.flush();
      stands.flush();
      for (AdjacentRowState.Kind kind : AdjacentRowState.Kind.values()) {
        AdjacentRowState.Rule ofKind = new AdjacentRowState.Rule(kind, 10, horizon);
        SortedPages pages =
            new SortedPages(versions.computeIfAbsent(kind, k -> new Traces.Memory()), AdjacentRowState.pruner(ofKind, left));
        new AdjacentRowState(ofKind, Slice.of(pages, key), left).version(row, part -> { });
        pages.flush();
      }
      lefts.flush();
      rights.flush();
      tables.flush();
      if (i % 1_000 == 0) {
        check(leftPages.bytes() <= most, "left rows of %d keys take %d bytes", keys, leftPages.bytes());
        check(rightPages.bytes() <= most, "right rows of %d keys take %d bytes", keys, rightPages.bytes());
        check(tablePages.bytes() <= most, "left tables of %d keys take %d bytes", keys, tablePages.bytes());
        check(standPages.bytes() <= most, "the join keys of %d keys take %d bytes", keys, standPages.bytes());
        // The first row of a group is kept for ever.
        versions.forEach((kind, pages) ->
            check(
                pages.bytes() <= most || (keys == 0 && kind == AdjacentRowState.Kind.FIRST),
                "%s of %d keys takes %d bytes", kind, keys, pages.bytes()));
      }
    }
    check(leftPages.bytes() > 1_000 * 50, "rows within the horizon are gone");
  }

  /** Returns for each identity the record that replaces all others (docs/inside/records.md). */
  private static List<Version> newest(List<Version> versions) {
    Map<String, Version> held = new HashMap<>();
    for (Version version : versions) {
      held.merge(text(version.id()), version, (old, candidate) -> candidate.replaces(old) ? candidate : old);
    }
    return new ArrayList<>(held.values());
  }

  private static Map<String, String> held(List<Out> sent) {
    Map<String, Out> held = new HashMap<>();
    for (Out out : sent) {
      Out known = held.get(out.id);
      int order = known == null ? 1 : Arrays.compareUnsigned(out.rev, known.rev);
      if (order > 0 || (order == 0 && (out.op != Version.RETRACT || known.op == Version.RETRACT))) {
        held.put(out.id, out);
      }
    }
    Map<String, String> result = new HashMap<>();
    held.forEach((id, out) -> {
      if (out.op != Version.RETRACT) {
        result.put(id, out.op + "@" + out.time + ":" + out.content);
      }
    });
    return result;
  }

  private static void compare(Map<String, String> found, Map<String, String> expected) {
    check(found.equals(expected), "found%n%s%nexpected%n%s", new TreeMap<>(found), new TreeMap<>(expected));
  }

  private static String text(byte[] bytes) {
    StringBuilder text = new StringBuilder();
    for (byte b : bytes == null ? new byte[0] : bytes) {
      text.append(String.format("%02x", b));
    }
    return bytes == null ? "none" : text.toString();
  }
}
