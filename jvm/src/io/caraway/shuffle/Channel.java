package io.caraway.shuffle;

import java.util.ArrayDeque;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;

/**
 * The rows on their way from some writing tasks to one reading task, in the order in which each writer wrote them.
 *
 * <p>The writers wait while so many bytes as the channel holds are on their way, so that a slow reader bounds the memory. A reader that waits for a row is woken by
 * it. Under load waking for each row would cost more than the row, so a reader that just had rows looks again after {@link #LOOK_NANOS} by itself.
 */
final class Channel {
  /** The time for which a busy reader lets rows gather, in nanoseconds. */
  private static final long LOOK_NANOS = 1_000_000;
  /** How often a waiting task looks whether Spark has ended it, in seconds; Spark mostly interrupts it, too. */
  private static final long KILL_CHECK_SECONDS = 5;

  private final ReentrantLock lock = new ReentrantLock();
  private final Condition readable = lock.newCondition();
  private final Condition writable = lock.newCondition();
  private final long mostBytes;
  private ArrayDeque<UnsafeRow> rows = new ArrayDeque<>();
  private long bytes;
  private int writers;
  private boolean readerWaits;
  private boolean abandoned;

  Channel(int writers, long mostBytes) {
    this.writers = writers;
    this.mostBytes = mostBytes;
  }

  /**
   * Adds a row, which nobody may change afterwards; waits while the channel is full. A row of any size fits into an empty channel.
   *
   * @param check is called from time to time while the writer waits, and throws if its task has been ended
   */
  void put(UnsafeRow row, Runnable check) throws InterruptedException {
    lock.lockInterruptibly();
    try {
      while (bytes >= mostBytes && !abandoned) {
        writable.await(KILL_CHECK_SECONDS, TimeUnit.SECONDS);
        check.run();
      }
      // Rows that nobody will read are dropped: the reader has failed, so Spark fails the batch, and reads it again.
      if (!abandoned) {
        rows.add(row);
        bytes += row.getSizeInBytes();
        wakeReader();
      }
    } finally {
      lock.unlock();
    }
  }

  /** Notes that a writer has put all its rows. */
  void finish() {
    lock.lock();
    try {
      writers--;
      wakeReader();
    } finally {
      lock.unlock();
    }
  }

  /**
   * Waits for rows and returns all that there are, none if all writers have finished.
   *
   * @param busy whether the reader just had rows
   * @param check is called from time to time while the reader waits, and throws if its task has been ended
   */
  ArrayDeque<UnsafeRow> take(boolean busy, Runnable check) throws InterruptedException {
    lock.lockInterruptibly();
    try {
      if (busy && rows.isEmpty() && writers > 0) {
        // No row wakes the reader meanwhile, since the reader doesn't announce that it waits.
        readable.awaitNanos(LOOK_NANOS);
      }
      while (rows.isEmpty() && writers > 0) {
        readerWaits = true;
        readable.await(KILL_CHECK_SECONDS, TimeUnit.SECONDS);
        check.run();
      }
      readerWaits = false;
      var taken = rows;
      if (!taken.isEmpty()) {
        rows = new ArrayDeque<>();
        bytes = 0;
        writable.signalAll();
      }
      return taken;
    } finally {
      lock.unlock();
    }
  }

  /** Returns whether no row is on its way. */
  boolean isEmpty() {
    lock.lock();
    try {
      return rows.isEmpty();
    } finally {
      lock.unlock();
    }
  }

  /** Notes that nobody will read any more. */
  void abandon() {
    lock.lock();
    try {
      abandoned = true;
      rows = new ArrayDeque<>();
      writable.signalAll();
    } finally {
      lock.unlock();
    }
  }

  private void wakeReader() {
    if (readerWaits) {
      readerWaits = false;
      readable.signal();
    }
  }
}
