package io.caraway;

import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.LongSupplier;
import java.util.function.Supplier;
import org.apache.spark.TaskContext;
import org.apache.spark.util.TaskCompletionListener;

/**
 * The trees of a task, one for each bucket of keys.
 *
 * <p>In real-time mode an operator is called for one row of a bucket at a time. So the trees that were used last stay in memory with their pages:
 * most rows then read no state, and only write the page that they change. This is safe since only the task itself changes its state, and a task
 * starts with nothing in memory.
 */
final class Trees {
  // The most bytes of pages in memory, divided equally among the tasks of a JVM. As objects, pages take twice their bytes, so they fill at most an
  // eighth of the heap.
  private static final long ALL_BYTES = Runtime.getRuntime().maxMemory() / 8 / 2;
  private static final AtomicInteger OPEN = new AtomicInteger();

  private final Supplier<SortedPages> opener;
  private final LongSupplier most;
  private final LinkedHashMap<Integer, SortedPages> recent = new LinkedHashMap<>(16, 0.75f, true);
  private long held;

  /** Creates trees; {@code opener} opens the tree of the current bucket, and {@code most} is the most bytes of pages in memory. */
  Trees(Supplier<SortedPages> opener, LongSupplier most) {
    this.opener = opener;
    this.most = most;
  }

  /** Creates trees that share the memory with those of the other running tasks. */
  static Trees sharing(Supplier<SortedPages> opener) {
    TaskContext task = TaskContext.get();
    // Spark's driver initializes an operator, too, but outside of a task and without rows.
    if (task != null) {
      OPEN.incrementAndGet();
      task.addTaskCompletionListener((TaskCompletionListener) ended -> OPEN.decrementAndGet());
    }
    return new Trees(opener, () -> ALL_BYTES / Math.max(OPEN.get(), 1));
  }

  /** Opens the tree of the current bucket. */
  SortedPages open(int bucket) {
    return recent.computeIfAbsent(bucket, b -> opener.get());
  }

  /** Writes the changes of the current bucket's tree, and drops the least recently used trees if their pages take too much memory. */
  void flush(SortedPages tree) {
    int more = tree.flush();
    held += more;
    if (more <= 0) {
      return;
    }
    Iterator<SortedPages> oldest = recent.values().iterator();
    while (held > most.getAsLong() && oldest.hasNext()) {
      held -= oldest.next().held();
      oldest.remove();
    }
  }

  /** Returns the bytes of pages that stay in memory between rows. */
  long held() {
    return held;
  }
}
