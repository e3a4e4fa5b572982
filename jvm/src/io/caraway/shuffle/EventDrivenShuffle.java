package io.caraway.shuffle;

import org.apache.spark.TaskContext;
import org.apache.spark.shuffle.ShuffleHandle;
import org.apache.spark.shuffle.ShuffleWriteMetricsReporter;
import org.apache.spark.shuffle.ShuffleWriter;
import org.apache.spark.shuffle.streaming.StreamingShuffleManager;

/**
 * Spark's streaming shuffle, whose writers send their buffers when there is something in them.
 *
 * <p>A writer of Spark's has a thread that looks at its buffers once in {@code networkBufferMaxWaitTimeMs}. With a millisecond, which real-time mode
 * needs for its freshness, that thread takes 1% of a core even if no row ever comes. Here one {@link Flusher} for all writers of a JVM sleeps until a
 * writer has a row. Set as {@code spark.shuffle.manager.incremental}.
 */
public final class EventDrivenShuffle extends StreamingShuffleManager {
  @Override
  public <K, V> ShuffleWriter<K, V> getWriter(ShuffleHandle handle, long mapId, TaskContext context, ShuffleWriteMetricsReporter metrics) {
    return new NotifyingWriter<>(handle, mapId, context);
  }
}
