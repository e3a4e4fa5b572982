package io.caraway.shuffle;

import java.util.stream.Stream;

/** The channels of one shuffle, one for each task that reads. */
final class LocalExchange {
  /** The bytes that wait for one task at most. */
  private static final long MOST_BYTES = 1 << 20;

  private final Channel[] channels;

  LocalExchange(int writers, int readers) {
    channels = Stream.generate(() -> new Channel(writers, MOST_BYTES)).limit(readers).toArray(Channel[]::new);
  }

  /** Returns the channel to a partition. */
  Channel channel(int partition) {
    return channels[partition];
  }

  /** Notes that one of the writers has written all its rows. */
  void finish() {
    for (var channel : channels) {
      channel.finish();
    }
  }
}
