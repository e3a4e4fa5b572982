package io.caraway;

import java.util.concurrent.ConcurrentHashMap;
import java.util.function.LongSupplier;

/**
 * The greatest event time that an operator has seen, with a delay. State behind it may be dropped.
 *
 * <p>While a backlog is read, one topic or partition may run far ahead of another in event time. So a time is settled, and counts, only some minutes
 * after it was reached. The times are kept in memory: after a restart nothing is dropped until a time has settled again.
 */
final class MaxEventTime {
  private static final ConcurrentHashMap<String, MaxEventTime> ALL = new ConcurrentHashMap<>();

  private final LongSupplier clockMs;
  private final long settleMs;
  private long settled = Long.MIN_VALUE;
  private long pending = Long.MIN_VALUE;
  private long greatest = Long.MIN_VALUE;
  private long since;

  MaxEventTime(LongSupplier clockMs, long settleMs) {
    this.clockMs = clockMs;
    this.settleMs = settleMs;
    since = clockMs.getAsLong();
  }

  /** Returns the object of this name in this JVM, which the tasks of an operator share. */
  static MaxEventTime named(String name, long settleMs) {
    return ALL.computeIfAbsent(name, n -> new MaxEventTime(System::currentTimeMillis, settleMs));
  }

  synchronized void advance(long time) {
    greatest = Math.max(greatest, time);
    long now = clockMs.getAsLong();
    if (now - since >= settleMs) {
      settled = pending;
      pending = greatest;
      since = now;
    }
  }

  /** Returns the settled time minus {@code horizon}, or the least long while no time has settled. */
  synchronized long settledBefore(long horizon) {
    long bound = settled - horizon;
    return bound < settled || horizon == 0 ? bound : Long.MIN_VALUE;
  }
}
