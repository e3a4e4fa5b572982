package io.caraway;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.spark.unsafe.hash.Murmur3_x86_32;

/** Keys by which a marker reaches every task of a stateful step. */
public final class Markers {
  // The seed of the hash by which Spark chooses the task of a row.
  private static final int SEED = 42;

  private Markers() {}

  /** Returns for each task, in order, a key whose rows go to that task. */
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
