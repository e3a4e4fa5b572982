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
final class LocalReader<K, C> implements ShuffleReader<K, C> {
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
    context.addTaskCompletionListener((TaskCompletionListener) ended -> channel.abandon());
    return new Rows();
  }

  private final class Rows extends AbstractIterator<Product2<K, C>> {
    private ArrayDeque<UnsafeRow> taken = new ArrayDeque<>();
    private boolean busy;
    private boolean ended;

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
