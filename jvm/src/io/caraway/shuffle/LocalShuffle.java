package io.caraway.shuffle;

import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.ShuffleDependency;
import org.apache.spark.TaskContext;
import org.apache.spark.shuffle.BaseShuffleHandle;
import org.apache.spark.shuffle.ShuffleHandle;
import org.apache.spark.shuffle.ShuffleReadMetricsReporter;
import org.apache.spark.shuffle.ShuffleReader;
import org.apache.spark.shuffle.ShuffleWriteMetricsReporter;
import org.apache.spark.shuffle.ShuffleWriter;
import org.apache.spark.shuffle.streaming.StreamingShuffleManager;

/**
 * The shuffle of real-time mode if all tasks run in one JVM: rows are handed from task to task in memory.
 *
 * <p>Spark's streaming shuffle sends rows over sockets also within a JVM. Each of its writers has a server, buffers and a thread that looks once in a
 * millisecond whether there is something to send, and each reader looks into its queue a hundred times a second. So a job took 2% of a core and a
 * dozen threads while no row came. Here a task that has nothing to do sleeps. Set as {@code spark.shuffle.manager.incremental}, in local mode only.
 *
 * <p>It extends Spark's own manager because Spark's scheduler makes the registry of shuffles, which it requires, for that class only.
 */
public final class LocalShuffle extends StreamingShuffleManager {
  /** The exchanges of the shuffles that have begun, by shuffle. */
  private final ConcurrentHashMap<Integer, LocalExchange> exchanges = new ConcurrentHashMap<>();

  @Override
  public <K, V, C> ShuffleHandle registerShuffle(int shuffleId, ShuffleDependency<K, V, C> dependency) {
    exchanges.put(shuffleId, new LocalExchange(dependency.rdd().getNumPartitions(), dependency.partitioner().numPartitions()));
    return new BaseShuffleHandle<>(shuffleId, dependency);
  }

  @Override
  public <K, V> ShuffleWriter<K, V> getWriter(ShuffleHandle handle, long mapId, TaskContext context, ShuffleWriteMetricsReporter metrics) {
    var partitioner = ((BaseShuffleHandle<?, ?, ?>) handle).dependency().partitioner();
    return new LocalWriter<>(exchange(handle), partitioner, mapId, context, metrics);
  }

  @Override
  public <K, C> ShuffleReader<K, C> getReader(
      ShuffleHandle handle, int startMap, int endMap, int startPartition, int endPartition, TaskContext context, ShuffleReadMetricsReporter metrics) {
    if (endPartition != startPartition + 1) {
      throw new IllegalArgumentException("a task of a streaming query reads one partition, not " + startPartition + " to " + endPartition);
    }
    return new LocalReader<>(exchange(handle).channel(startPartition), context, metrics);
  }

  @Override
  public boolean unregisterShuffle(int shuffleId) {
    return exchanges.remove(shuffleId) != null;
  }

  @Override
  public void stop() {
    exchanges.clear();
  }

  private LocalExchange exchange(ShuffleHandle handle) {
    var exchange = exchanges.get(handle.shuffleId());
    if (exchange == null) {
      throw new IllegalStateException("shuffle " + handle.shuffleId() + " isn't known in this JVM: the local shuffle needs spark.master=local");
    }
    return exchange;
  }
}
