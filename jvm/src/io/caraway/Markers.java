package io.caraway;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.spark.unsafe.hash.Murmur3_x86_32;

/** Keys by which a marker gets to every task of a step that keeps rows. */
public final class Markers {
  // The seed of the hash by which Spark chooses the task of a row.
  private static final int SEED = 42;

  private Markers() {}

  /** Returns a key for each of so many tasks, in their order: rows with the key go to the task. */
  public static List<byte[]> keys(int tasks) {
    byte[][] keys = new byte[tasks][];
    int found = 0;
    for (int i = 0; found < tasks; i++) {
      byte[] key = {(byte) (i >>> 24), (byte) (i >>> 16), (byte) (i >>> 8), (byte) i};
      int task = Math.floorMod(Murmur3_x86_32.hashInt(Slice.bucket(key), SEED), tasks);
      if (keys[task] == null) {
        keys[task] = key;
        found++;
      }
    }
    return new ArrayList<>(Arrays.asList(keys));
  }
}
