package io.caraway.shuffle;

import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.spark.TaskContext;
import org.apache.spark.shuffle.ShuffleHandle;
import org.apache.spark.shuffle.streaming.StreamingShuffleWriter;
import org.apache.spark.shuffle.streaming.StreamingShuffleWriter$;
import scala.Product2;
import scala.collection.AbstractIterator;
import scala.collection.Iterator;

/** A writer of the streaming shuffle that tells the {@link Flusher} when rows wait in its buffers. */
final class NotifyingWriter<K, V> extends StreamingShuffleWriter<K, V> {
  private final AtomicBoolean queued = new AtomicBoolean();

  NotifyingWriter(ShuffleHandle handle, long mapId, TaskContext context) {
    super(handle, mapId, context, StreamingShuffleWriter$.MODULE$.$lessinit$greater$default$4(), StreamingShuffleWriter$.MODULE$.$lessinit$greater$default$5());
  }

  @Override
  public void write(Iterator<Product2<K, V>> rows) {
    super.write(new Written(rows));
  }

  /** Sends what the buffers hold. An error fails the task that writes, as an error of Spark's own thread would. */
  void flush() {
    // A row that is written from here on queues the writer again, even if this flush sends the row already.
    queued.set(false);
    try {
      for (var shard : shards()) {
        shard.send();
      }
    } catch (Throwable error) {
      errorNotifier().markError(error);
    }
  }

  private void announce() {
    // Most rows of a busy writer find it queued, for which a read is enough.
    if (!queued.get() && queued.compareAndSet(false, true)) {
      Flusher.INSTANCE.add(this);
    }
  }

  /** The rows to write. Spark's writer asks for the next row when it has put the last one into a buffer. */
  private final class Written extends AbstractIterator<Product2<K, V>> {
    private final Iterator<Product2<K, V>> rows;
    private boolean buffered;

    Written(Iterator<Product2<K, V>> rows) {
      this.rows = rows;
    }

    @Override
    public boolean hasNext() {
      if (buffered) {
        buffered = false;
        announce();
      }
      return rows.hasNext();
    }

    @Override
    public Product2<K, V> next() {
      buffered = true;
      return rows.next();
    }
  }
}
