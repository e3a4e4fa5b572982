package io.caraway.shuffle;

import org.apache.spark.Partitioner;
import org.apache.spark.SparkEnv;
import org.apache.spark.TaskContext;
import org.apache.spark.scheduler.MapStatus;
import org.apache.spark.shuffle.ShuffleWriteMetricsReporter;
import org.apache.spark.shuffle.ShuffleWriter;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import scala.Option;
import scala.Product2;
import scala.Some;
import scala.collection.Iterator;

/** Hands the rows of a task to the tasks of the next stage. */
final class LocalWriter<K, V> extends ShuffleWriter<K, V> {
  private final LocalExchange exchange;
  private final Partitioner partitioner;
  private final long mapId;
  private final TaskContext context;
  private final ShuffleWriteMetricsReporter metrics;

  LocalWriter(LocalExchange exchange, Partitioner partitioner, long mapId, TaskContext context, ShuffleWriteMetricsReporter metrics) {
    this.exchange = exchange;
    this.partitioner = partitioner;
    this.mapId = mapId;
    this.context = context;
    this.metrics = metrics;
  }

  @Override
  public void write(Iterator<Product2<K, V>> rows) {
    try {
      while (rows.hasNext()) {
        var row = rows.next();
        // Spark uses the memory of a row again for the next one.
        exchange.channel(partitioner.getPartition(row._1())).put(((UnsafeRow) row._2()).copy(), context::killTaskIfInterrupted);
        metrics.incRecordsWritten(1);
      }
    } catch (InterruptedException error) {
      // The reason for which Spark interrupts a task is in its context.
      context.killTaskIfInterrupted();
      throw new IllegalStateException("a task that writes to a shuffle was interrupted without a reason", error);
    }
    // If rows failed, the readers must not end as if all rows had come.
    exchange.finish();
  }

  @Override
  public Option<MapStatus> stop(boolean success) {
    // Nobody fetches files of this shuffle; Spark takes the status as the sign that the task has written.
    return new Some<>(MapStatus.apply(SparkEnv.get().blockManager().shuffleServerId(), getPartitionLengths(), mapId, 0));
  }

  @Override
  public long[] getPartitionLengths() {
    return new long[partitioner.numPartitions()];
  }
}
