package io.caraway;

import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.LongSupplier;
import java.util.function.Supplier;
import org.apache.spark.TaskContext;
import org.apache.spark.util.TaskCompletionListener;

/**
 * The trees of a task, one a bucket of keys.
 *
 * <p>In real-time mode a bucket comes with one row at a time. So the trees that were used last stay in memory with their pages: a row then
 * mostly reads no state, and writes the page that it changes. That is safe since nothing but the task changes its state, and a task begins
 * with nothing in memory.
 */
final class Trees {
  // The trees of all tasks of a JVM may take an eighth of its heap, each the same share; as objects, bytes of pages take twice as much.
  private static final long ALL_BYTES = Runtime.getRuntime().maxMemory() / 8 / 2;
  private static final AtomicInteger OPEN = new AtomicInteger();

  private final Supplier<SortedPages> opener;
  private final LongSupplier most;
  private final LinkedHashMap<Integer, SortedPages> recent = new LinkedHashMap<>(16, 0.75f, true);
  private long held;

  /** Makes trees, with what opens that of the current bucket and the bytes of pages that they may hold in memory. */
  Trees(Supplier<SortedPages> opener, LongSupplier most) {
    this.opener = opener;
    this.most = most;
  }

  /** Makes trees that share the memory with those of the other tasks that are running. */
  static Trees sharing(Supplier<SortedPages> opener) {
    TaskContext task = TaskContext.get();
    // Spark's driver asks an operator for its state, too, but puts no rows in.
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

  /** Writes what has changed in the tree of the current bucket, and lets go of those that were used longest ago if too many are held. */
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

  /** Returns how many bytes of pages are held in memory between rows. */
  long held() {
    return held;
  }
}
