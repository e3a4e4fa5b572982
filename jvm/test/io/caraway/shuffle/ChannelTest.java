package io.caraway.shuffle;

import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.Callable;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;

/** Checks what a channel promises to the tasks at its ends, with threads instead of tasks. The argument is the number of seeds. */
final class ChannelTest {
  private static final long MOST_BYTES = 4096;
  private static final int MOST_FIELDS = 100;
  private static final Runnable NOT_ENDED = () -> {};

  private ChannelTest() {}

  public static void main(String[] args) throws Exception {
    for (int seed = 0; seed < Integer.parseInt(args[0]); seed++) {
      eachRowArrivesOnceInTheOrderOfItsWriter(seed);
    }
    aWriterWaitsForASlowReader();
    writersOfAnAbandonedChannelEnd();
    waitingTasksCanBeInterrupted();
    aReaderWaitsUntilTheLastWriterHasFinished();
    System.out.println("ok " + args[0]);
  }

  private static void eachRowArrivesOnceInTheOrderOfItsWriter(int seed) throws Exception {
    var random = new Random(seed);
    int writers = 1 + random.nextInt(4);
    int rows = random.nextInt(2000);
    var channel = new Channel(writers, MOST_BYTES);
    try (var threads = new Threads()) {
      for (int writer = 0; writer < writers; writer++) {
        int number = writer;
        var own = new Random(random.nextLong());
        threads.start(() -> {
          for (int i = 0; i < rows; i++) {
            channel.put(row(number, i, 2 + own.nextInt(MOST_FIELDS)), NOT_ENDED);
            if (own.nextInt(50) == 0) {
              Thread.yield();
            }
          }
          channel.finish();
          return null;
        });
      }
      int[] next = new int[writers];
      boolean busy = false;
      for (var taken = channel.take(busy, NOT_ENDED); !taken.isEmpty(); taken = channel.take(busy, NOT_ENDED)) {
        long bytes = taken.stream().mapToLong(UnsafeRow::getSizeInBytes).sum();
        check(bytes < MOST_BYTES + 8L * (MOST_FIELDS + 10), "a channel holds " + bytes + " bytes");
        for (var row : taken) {
          int writer = (int) row.getLong(0);
          check(row.getLong(1) == next[writer]++, "a row of writer " + writer + " came in another order");
        }
        busy = random.nextBoolean();
      }
      for (int count : next) {
        check(count == rows, count + " of " + rows + " rows came");
      }
    }
  }

  private static void aWriterWaitsForASlowReader() throws Exception {
    var channel = new Channel(1, MOST_BYTES);
    var written = new AtomicLong();
    try (var threads = new Threads()) {
      var writer = threads.start(() -> {
        for (int i = 0; i < 10 * MOST_BYTES; i++) {
          channel.put(row(0, i, 2), NOT_ENDED);
          written.incrementAndGet();
        }
        channel.finish();
        return null;
      });
      long size = row(0, 0, 2).getSizeInBytes();
      long fit = (MOST_BYTES + size - 1) / size;
      long taken = 0;
      while (true) {
        var rows = channel.take(false, NOT_ENDED);
        if (rows.isEmpty()) {
          break;
        }
        taken += rows.size();
        check(written.get() <= taken + fit, "the writer is ahead by more than the channel holds");
      }
      writer.get();
      check(taken == 10 * MOST_BYTES, taken + " rows came");
    }
  }

  private static void writersOfAnAbandonedChannelEnd() throws Exception {
    var channel = new Channel(1, MOST_BYTES);
    try (var threads = new Threads()) {
      var writer = threads.start(() -> {
        for (int i = 0; i < 10 * MOST_BYTES; i++) {
          channel.put(row(0, i, 2), NOT_ENDED);
        }
        return null;
      });
      channel.take(false, NOT_ENDED);
      channel.abandon();
      writer.get();
    }
  }

  private static void waitingTasksCanBeInterrupted() throws Exception {
    for (boolean reads : new boolean[] {true, false}) {
      var channel = new Channel(1, MOST_BYTES);
      var begun = new CountDownLatch(1);
      var interrupted = new CountDownLatch(1);
      var thread = new Thread(() -> {
        try {
          begun.countDown();
          while (true) {
            if (reads) {
              channel.take(false, NOT_ENDED);
            } else {
              channel.put(row(0, 0, 2), NOT_ENDED);
            }
          }
        } catch (InterruptedException error) {
          interrupted.countDown();
        }
      });
      thread.start();
      begun.await();
      thread.interrupt();
      check(interrupted.await(30, TimeUnit.SECONDS), "a waiting task doesn't notice that it is interrupted");
      thread.join();
    }
  }

  private static void aReaderWaitsUntilTheLastWriterHasFinished() throws Exception {
    var channel = new Channel(2, MOST_BYTES);
    channel.finish();
    try (var threads = new Threads()) {
      var reader = threads.start(() -> channel.take(false, NOT_ENDED).size());
      channel.put(row(0, 0, 2), NOT_ENDED);
      check(reader.get() == 1, "the reader ended before the last writer");
      channel.finish();
      check(channel.take(true, NOT_ENDED).isEmpty(), "there are rows after the last one");
    }
  }

  private static UnsafeRow row(int writer, int number, int fields) {
    var row = new UnsafeRow(fields);
    int size = UnsafeRow.calculateBitSetWidthInBytes(fields) + 8 * fields;
    row.pointTo(new byte[size], size);
    row.setLong(0, writer);
    row.setLong(1, number);
    return row;
  }

  private static void check(boolean holds, String otherwise) {
    if (!holds) {
      throw new AssertionError(otherwise);
    }
  }

  /** Threads whose errors are errors of the test. */
  private static final class Threads implements AutoCloseable {
    private final ExecutorService pool = Executors.newCachedThreadPool();
    private final List<Future<?>> started = new ArrayList<>();

    <T> Future<T> start(Callable<T> work) {
      var future = pool.submit(work);
      started.add(future);
      return future;
    }

    @Override
    public void close() throws InterruptedException, ExecutionException {
      try {
        for (var future : started) {
          future.get();
        }
      } finally {
        pool.shutdownNow();
      }
    }
  }
}
