package io.caraway.shuffle;

import java.util.ArrayDeque;
import java.util.NoSuchElementException;
import org.apache.spark.TaskContext;
import org.apache.spark.shuffle.ShuffleReadMetricsReporter;
import org.apache.spark.shuffle.ShuffleReader;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.util.TaskCompletionListener;
import scala.Product2;
import scala.Tuple2;
import scala.collection.AbstractIterator;
import scala.collection.Iterator;

/** Reads the rows of a channel, until all its writers have finished. */
public final class LocalReader<K, C> implements ShuffleReader<K, C> {
  // The rows that the task of a thread reads, if it reads from a shuffle.
  private static final ThreadLocal<LocalReader<?, ?>.Rows> CURRENT = new ThreadLocal<>();

  private final Channel channel;
  private final TaskContext context;
  private final ShuffleReadMetricsReporter metrics;

  LocalReader(Channel channel, TaskContext context, ShuffleReadMetricsReporter metrics) {
    this.channel = channel;
    this.context = context;
    this.metrics = metrics;
  }

  @Override
  public Iterator<Product2<K, C>> read() {
    Rows rows = new Rows();
    CURRENT.set(rows);
    context.addTaskCompletionListener((TaskCompletionListener) ended -> {
      channel.abandon();
      CURRENT.remove();
    });
    return rows;
  }

  /** Returns whether the task of this thread would wait now if it read a further row; true as well if it reads from no shuffle of this process. */
  public static boolean wouldWait() {
    LocalReader<?, ?>.Rows rows = CURRENT.get();
    return rows == null || rows.wouldWait();
  }

  /** Notes whether the task of this thread holds records back until it would wait. */
  public static void holds(boolean records) {
    LocalReader<?, ?>.Rows rows = CURRENT.get();
    if (rows != null) {
      rows.holds = records;
    }
  }

  /** Returns whether the task of this thread holds records back: then each row that it reads must lead to a row, lest it wait within a step. */
  public static boolean holds() {
    LocalReader<?, ?>.Rows rows = CURRENT.get();
    return rows != null && rows.holds;
  }

  private final class Rows extends AbstractIterator<Product2<K, C>> {
    private ArrayDeque<UnsafeRow> taken = new ArrayDeque<>();
    private boolean busy;
    private boolean ended;
    private boolean holds;

    @Override
    public boolean hasNext() {
      if (taken.isEmpty() && !ended) {
        try {
          taken = channel.take(busy, context::killTaskIfInterrupted);
        } catch (InterruptedException error) {
          // The reason for which Spark interrupts a task is in its context.
          context.killTaskIfInterrupted();
          throw new IllegalStateException("a task that reads from a shuffle was interrupted without a reason", error);
        }
        ended = taken.isEmpty();
        busy = !ended;
        metrics.incRecordsRead(taken.size());
      }
      return !ended;
    }

    private boolean wouldWait() {
      return taken.isEmpty() && channel.isEmpty();
    }

    @Override
    @SuppressWarnings("unchecked")
    public Product2<K, C> next() {
      if (!hasNext()) {
        throw new NoSuchElementException("all rows were read");
      }
      // Spark's readers of rows look at the value only.
      return new Tuple2<>(null, (C) taken.poll());
    }
  }
}
