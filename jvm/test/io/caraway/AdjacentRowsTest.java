package io.caraway;

import static io.caraway.Traces.check;

import io.caraway.AdjacentRowState.Kind;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import java.util.function.Consumer;

/** Compares the operators on adjacent rows, alone, in chains, and after or before a join, with plain ones over sorted lists. */
final class AdjacentRowsTest {
  private static final long FOREVER = Long.MAX_VALUE / 4;
  private static final long SECOND = 1_000_000;
  // The microseconds of one step of a generated time; records are also a microsecond and half a second beside it.
  private static final long WINDOW = 3 * SECOND;
  private static final int JOIN = -1;
  private static final int RIGHT = 2;
  private static final AsOfState.Rule RULE = new AsOfState.Rule(FOREVER, -1, 0, true, false);

  /**
   * A chain of steps, each a kind by its number, or a join.
   *
   * <p>With {@code moves}, the joined row decides to which group a row goes in later steps, so a row may be in a group for a moment, in one attempt
   * only.
   *
   * @param ordered steps whose groups are partitions, which are read in the same order in all runs
   */
  private record Chain(int[] steps, boolean deletes, boolean revised, boolean moves, int ordered) {
    int key(int step, Version version) {
      return step < ordered ? version.id()[version.id().length - 1] : (version.row()[0] & 0xff) / (step + 1) % 3;
    }

    byte[] with(byte[] row, byte[] right) {
      byte[] both = Arrays.copyOf(row, row.length + 1);
      both[row.length] = right == null ? 0 : right[0];
      if (moves) {
        both[0] += both[row.length];
      }
      return both;
    }
  }

  private AdjacentRowsTest() {}

  static void run(int seed) {
    Random random = new Random(seed);
    int[] steps = new int[1 + random.nextInt(3)];
    for (int i = 0; i < steps.length; i++) {
      boolean join = random.nextInt(4) == 0 && Arrays.stream(steps).noneMatch(step -> step == JOIN);
      steps[i] = join ? JOIN : random.nextInt(Kind.values().length);
      if (i + 1 < steps.length && (steps[i] == Kind.AGGREGATE_INPUTS.ordinal() || steps[i] == Kind.TABLE.ordinal())) {
        // Only indexes read aggregate inputs, and only joins read the begins and ends of tables (TablesTest).
        steps[i] = Kind.CHANGES.ordinal();
      }
    }
    run(random, steps);
  }

  /** Tests the chain in which a failed attempt does most harm: a joined row decides the group of a step on adjacent rows. */
  static void regrouped(int seed) {
    Random random = new Random(seed);
    Kind[] kinds = {Kind.FIRST, Kind.INSTANT, Kind.TUMBLING, Kind.SESSION};
    run(random, new int[] {JOIN, kinds[random.nextInt(kinds.length)].ordinal()});
  }

  private static void run(Random random, int[] steps) {
    boolean table = steps[0] != JOIN && Kind.values()[steps[0]].twofold();
    int last = steps.length - 1;
    while (last > 0 && steps[last - 1] != Kind.CHANGES.ordinal()) {
      last--;
    }
    // The ends of a changelog move in time, in another way if groups arrive in another order, so no crash is tried then (docs/inside/records.md, limits).
    boolean joined = Arrays.stream(steps, 0, last).anyMatch(step -> step == JOIN);
    boolean moves = joined || random.nextBoolean();
    Chain chain = new Chain(steps, table && random.nextBoolean(), random.nextInt(3) > 0, moves, joined ? 0 : last);
    int times = 1 + random.nextInt(30);
    List<List<Version>> sides = new ArrayList<>();
    for (int side = 0; side < 3; side++) {
      sides.add(records(random, side, times, chain));
    }
    sides = Traces.ingested(random, sides);
    boolean inOrder = random.nextBoolean();
    int ordered = inOrder ? sides.size() : 0;
    List<Version> sent = new ArrayList<>();
    Map<String, Traces.Memory> pages = new HashMap<>();
    int[] read = new int[sides.size()];
    int total = sides.stream().mapToInt(List::size).sum();
    int checkpoint = random.nextInt(total);
    for (int i = 0; i < checkpoint; i++) {
      step(chain, pages, null, sides, read, random, ordered, sent);
    }
    Map<String, Traces.Memory> failed = new HashMap<>();
    pages.forEach((name, memory) -> failed.put(name, memory.copy()));
    int[] readOn = read.clone();
    int crash = joined ? 0 : random.nextInt(total - checkpoint + 1);
    for (int i = 0; i < crash; i++) {
      step(chain, failed, null, sides, readOn, random, ordered, sent);
    }
    // The first batch must read at least the records that were read before the crash.
    Replay replay = new Replay(Long.MAX_VALUE);
    int i = checkpoint;
    while (!Traces.reached(read, readOn)) {
      step(chain, pages, replay, sides, read, random, ordered, sent);
      i++;
    }
    for (; i < total; i++) {
      step(chain, pages, null, sides, read, random, ordered, sent);
    }
    String found = text(newest(sent));
    List<Version> left = new ArrayList<>(sides.get(0));
    left.addAll(sides.get(1));
    String expected = text(plain(chain, newest(left), newest(sides.get(RIGHT))));
    check(found.equals(expected), "%s%nfound%n%s%nexpected%n%s", Arrays.toString(steps), found, expected);
    // A single operator also shows what was known if records are read in another order than that of their ingestion, unless they were corrected.
    if (inOrder || (steps.length == 1 && !chain.revised)) {
      for (long moment : Traces.moments(sides)) {
        List<Version> then = Traces.known(sides.get(0), moment);
        then.addAll(Traces.known(sides.get(1), moment));
        String shown = text(newest(Traces.known(sent, moment)));
        String known = text(plain(chain, newest(then), newest(Traces.known(sides.get(RIGHT), moment))));
        check(shown.equals(known), "%s, known at %d%nfound%n%s%nexpected%n%s", Arrays.toString(steps), moment, shown, known);
      }
    }
    // A row that moves to another key must be retracted under the old one.
    String astray = text(Traces.astray(sent, version -> (version.row()[0] & 0xff) % 3));
    check(astray.isEmpty(), "%s%nastray%n%s", Arrays.toString(steps), astray);
  }

  /** Returns records of one partition; rows may be replaced by rows of another key and time, and retracted. */
  private static List<Version> records(Random random, int side, int times, Chain chain) {
    List<Version> made = new ArrayList<>();
    Map<Integer, Version> held = new HashMap<>();
    for (int i = 0; i < 30; i++) {
      boolean again = !held.isEmpty() && random.nextInt(3) == 0;
      int number = again ? new ArrayList<>(held.keySet()).get(random.nextInt(held.size())) : i;
      Version known = held.get(number);
      if (again && (!chain.revised || side == RIGHT || random.nextInt(4) == 0)) {
        made.add(known);
        continue;
      }
      byte[] rev = chain.revised && side != RIGHT ? new byte[] {0, (byte) (known == null ? random.nextInt(2) : i + 2)} : new byte[0];
      long time = random.nextInt(times) * SECOND + new long[] {0, 1, -1, SECOND / 2}[random.nextInt(4)];
      byte[] row = {(byte) random.nextInt(256)};
      byte[] id = {(byte) number, (byte) side};
      int op = chain.deletes && random.nextInt(6) == 0 ? Version.DELETE : Version.PUT;
      Version version = new Version(op, time, 0, id, rev, row);
      boolean gone = rev.length > 0 && random.nextInt(4) == 0;
      if (known != null) {
        made.add(new Version(Version.RETRACT, known.time(), 0, id, rev, known.row()));
      } else if (gone) {
        made.add(new Version(Version.RETRACT, time, 0, id, rev, row));
      }
      if (!gone) {
        made.add(version);
        held.put(number, version);
      } else if (known != null) {
        held.put(number, made.get(made.size() - 1));
      }
    }
    return made;
  }

  /** Processes one record of any side: left ones of two partitions, or right ones. */
  private static void step(
      Chain chain, Map<String, Traces.Memory> pages, Replay replay, List<List<Version>> sides, int[] read, Random random,
      int ordered, List<Version> sent) {
    int side = Traces.next(random, ordered, sides, read);
    int offset = read[side]++;
    Version version = sides.get(side).get(offset);
    if (side < RIGHT) {
      left(chain, 0, pages, replay, version, sent);
      return;
    }
    for (int i = 0; i < chain.steps.length; i++) {
      if (chain.steps[i] == JOIN) {
        int after = i + 1;
        join(
            pages, replay, chain.key(i, version),
            state -> state.right(version, offset, joined -> joined(chain, after, pages, replay, joined, sent)));
      }
    }
  }

  private static void left(
      Chain chain, int step, Map<String, Traces.Memory> pages, Replay replay, Version version, List<Version> sent) {
    if (step == chain.steps.length) {
      sent.add(version);
    } else if (chain.steps[step] == JOIN) {
      join(
          pages, replay, chain.key(step, version),
          state -> state.left(version, joined -> joined(chain, step + 1, pages, replay, joined, sent)));
    } else {
      Kind kind = Kind.values()[chain.steps[step]];
      SortedPages versions = new SortedPages(pages.computeIfAbsent("" + step, n -> new Traces.Memory()));
      // All keys are in one bucket.
      Slice own = Slice.of(versions, new byte[] {(byte) chain.key(step, version)});
      AdjacentRowState.Rule rule = new AdjacentRowState.Rule(kind, WINDOW, FOREVER);
      List<Version> out = new ArrayList<>();
      new AdjacentRowState(rule, own, new MaxEventTime(() -> 0, Traces.SETTLE_MS)).version(version, part -> out.add(marked(chain, kind, part.which(), part.version())));
      versions.flush();
      out.forEach(part -> left(chain, step + 1, pages, replay, part, sent));
    }
  }

  private static void join(Map<String, Traces.Memory> pages, Replay replay, int key, Consumer<AsOfState> use) {
    SortedPages lefts = new SortedPages(pages.computeIfAbsent("left", n -> new Traces.Memory()));
    SortedPages rights = new SortedPages(pages.computeIfAbsent("right", n -> new Traces.Memory()));
    byte[] bytes = {(byte) key};
    MaxEventTime maxEventTime = new MaxEventTime(() -> 0, Traces.SETTLE_MS);
    Replay.Arrivals replayed = replay == null ? null : replay.of(bytes);
    use.accept(new AsOfState(RULE, Slice.of(lefts, bytes), Slice.of(rights, bytes), maxEventTime, maxEventTime, replayed));
    lefts.flush();
    rights.flush();
  }

  private static void joined(
      Chain chain, int step, Map<String, Traces.Memory> pages, Replay replay, AsOfState.Joined joined, List<Version> sent) {
    Version left = joined.left();
    left(chain, step, pages, replay, new Version(joined.op(), left.time(), left.ingested(), left.id(), joined.rev(), chain.with(left.row(), joined.right())), sent);
  }

  private static Version marked(Chain chain, Kind kind, int which, Version version) {
    boolean flagged = kind == Kind.CHANGES;
    byte[] row = flagged ? chain.with(version.row(), new byte[] {(byte) which}) : version.row();
    return new Version(version.op(), version.time(), version.ingested(), version.id(), version.rev(), row);
  }

  private static List<Version> plain(Chain chain, List<Version> rows, List<Version> rights) {
    List<Version> made = rows;
    for (int i = 0; i < chain.steps.length; i++) {
      Map<Integer, List<Version>> groups = new TreeMap<>();
      int step = i;
      made.sort(Comparator.comparing(Version::key, Arrays::compareUnsigned));
      made.forEach(row -> groups.computeIfAbsent(chain.key(step, row), k -> new ArrayList<>()).add(row));
      List<Version> next = new ArrayList<>();
      groups.forEach((key, group) -> {
        if (chain.steps[step] == JOIN) {
          plainJoin(chain, group, rights.stream().filter(right -> chain.key(step, right) == key).toList(), next);
        } else {
          plainAdjacentRows(chain, Kind.values()[chain.steps[step]], group, next);
        }
      });
      made = next;
    }
    return made;
  }

  private static void plainJoin(Chain chain, List<Version> lefts, List<Version> rights, List<Version> out) {
    for (Version left : lefts) {
      rights.stream()
          .filter(right -> right.time() <= left.time())
          .max(Comparator.comparing(Version::key, Arrays::compareUnsigned))
          .filter(match -> match.op() == Version.PUT)
          .ifPresent(match -> out.add(new Version(left.op(), left.time(), 0, left.id(), left.rev(), chain.with(left.row(), match.row()))));
    }
  }

  private static void plainAdjacentRows(Chain chain, Kind kind, List<Version> group, List<Version> out) {
    for (int i = 0; i < group.size(); i++) {
      Version row = group.get(i);
      Version next = i + 1 < group.size() ? group.get(i + 1) : null;
      boolean zero = next != null && next.time() == row.time();
      if (row.op() != Version.PUT) {
        if (kind == Kind.TABLE && !zero) {
          out.add(named(row, Version.DELETE, row.time(), Traces.join(new byte[] {1}, row.key())));
        }
        continue;
      }
      switch (kind) {
        case AGGREGATE_INPUTS -> {
          out.add(named(row, Version.PUT, row.time(), Traces.join(row.id(), (byte) 0)));
          if (next != null) {
            out.add(named(row, Version.DELETE, next.time(), Traces.join(row.id(), (byte) 1)));
          }
        }
        case TABLE -> {
          if (!zero) {
            out.add(named(row, Version.PUT, row.time(), Traces.join(new byte[] {1}, row.key())));
          }
          if (!zero && next != null) {
            out.add(named(row, Version.DELETE, next.time(), Traces.join(new byte[] {0}, row.key())));
          }
        }
        case CHANGES -> {
          if (!zero) {
            out.add(marked(chain, kind, 0, named(row, Version.PUT, row.time(), Traces.join(new byte[] {0}, row.key()))));
          }
          if (!zero && next != null) {
            out.add(marked(chain, kind, 1, named(row, Version.PUT, next.time(), Traces.join(new byte[] {1}, row.key()))));
          }
        }
        case FIRST -> {
          if (i == 0) {
            out.add(row);
          }
        }
        default -> {
          boolean same = next != null && switch (kind) {
            case INSTANT -> zero;
            case TUMBLING -> Math.floorDiv(next.time(), WINDOW) == Math.floorDiv(row.time(), WINDOW);
            default -> next.time() - row.time() < WINDOW;
          };
          if (!same) {
            out.add(row);
          }
        }
      }
    }
  }

  private static Version named(Version row, int op, long time, byte[] id) {
    return new Version(op, time, 0, id, row.rev(), row.row());
  }

  private static List<Version> newest(List<Version> sent) {
    Map<String, Version> held = new HashMap<>();
    for (Version version : sent) {
      held.merge(Arrays.toString(version.id()), version, (old, candidate) -> candidate.replaces(old) ? candidate : old);
    }
    List<Version> result = new ArrayList<>(held.values());
    result.removeIf(version -> version.op() == Version.RETRACT);
    return result;
  }

  private static String text(List<Version> versions) {
    StringBuilder text = new StringBuilder();
    versions.sort(Comparator.comparing(Version::key, Arrays::compareUnsigned).thenComparing(Version::op));
    versions.forEach(
        v -> text.append(String.format("%s@%d %s %s%n", v.op(), v.time(), Arrays.toString(v.id()), Arrays.toString(v.row()))));
    return text.toString();
  }
}
