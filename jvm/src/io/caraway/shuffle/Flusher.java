package io.caraway.shuffle;

import java.util.ArrayList;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.locks.LockSupport;

/**
 * The thread that sends the buffers of all writers of the streaming shuffle in a JVM.
 *
 * <p>A row that comes after a pause is sent at once. Under load a writer's buffers are sent once in {@link #LEAST_NANOS} at most, so that rows travel
 * together; a buffer that is full is sent by Spark's writer itself.
 */
final class Flusher implements Runnable {
  static final Flusher INSTANCE = started();

  /** The least time between two rounds, in nanoseconds. */
  private static final long LEAST_NANOS = 1_000_000;

  private final LinkedBlockingQueue<NotifyingWriter<?, ?>> waiting = new LinkedBlockingQueue<>();

  private Flusher() {}

  private static Flusher started() {
    var flusher = new Flusher();
    var thread = new Thread(flusher, "streaming-shuffle-flusher");
    thread.setDaemon(true);
    thread.start();
    return flusher;
  }

  /** Adds a writer whose buffers are to be sent soon. */
  void add(NotifyingWriter<?, ?> writer) {
    waiting.add(writer);
  }

  @Override
  public void run() {
    var round = new ArrayList<NotifyingWriter<?, ?>>();
    var lastAt = System.nanoTime() - LEAST_NANOS;
    while (true) {
      try {
        round.add(waiting.take());
      } catch (InterruptedException error) {
        // Nobody interrupts this thread. If somebody does, rows must still be sent.
        continue;
      }
      var rest = lastAt + LEAST_NANOS - System.nanoTime();
      if (rest > 0) {
        LockSupport.parkNanos(rest);
      }
      waiting.drainTo(round);
      for (var writer : round) {
        writer.flush();
      }
      round.clear();
      lastAt = System.nanoTime();
    }
  }
}
