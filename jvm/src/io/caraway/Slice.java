package io.caraway;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/**
 * The entries of one key in a tree that many keys share; each entry's key is that key followed by a position in time.
 *
 * <p>Spark only changes the state of a group when rows of the group arrive, so a group is a bucket of keys ({@link #bucket}): a row of any key can
 * prune a full page of old entries of all keys on it. The position of a key in its bucket is scattered, so that rising keys such as numbers fill all
 * pages, and not only the last one, and each page is full and pruned now and then.
 *
 * @param pages the tree
 * @param prefix the bytes with which the keys of the entries begin
 */
record Slice(SortedPages pages, byte[] prefix) {
  // The bits of a bucket's number. Each bucket has a page that keeps old entries until it is full, so that 8,192 buckets keep at most 8 MiB of old
  // entries. With ten million keys a bucket is a tree of three levels.
  private static final int BUCKET_BITS = 13;
  private static final int SCATTER_BYTES = 2;
  private static final byte[] ABOVE_ALL_TIMES = {-1, -1, -1, -1, -1, -1, -1, -1, -1};

  static int bucket(byte[] key) {
    return (int) (hash(key) & ((1 << BUCKET_BITS) - 1));
  }

  /** Returns the entries of a key. */
  static Slice of(SortedPages pages, byte[] key) {
    ByteBuffer prefix = ByteBuffer.allocate(SCATTER_BYTES + Integer.BYTES + key.length);
    return new Slice(pages, prefix.putShort((short) (hash(key) >>> BUCKET_BITS)).putInt(key.length).put(key).array());
  }

  /** Returns the entries below a further key. */
  Slice of(byte[] further) {
    return new Slice(pages, ByteBuffer.allocate(prefix.length + Integer.BYTES + further.length)
        .put(prefix).putInt(further.length).put(further).array());
  }

  /** Returns the length in bytes of the prefix of an entry's key that has so many keys. */
  static int prefixLength(byte[] entryKey, int keys) {
    int length = SCATTER_BYTES;
    for (int i = 0; i < keys; i++) {
      length += Integer.BYTES + ByteBuffer.wrap(entryKey).getInt(length);
    }
    return length;
  }

  /** Returns all further keys below this one. */
  List<byte[]> furtherKeys() {
    List<byte[]> found = new ArrayList<>();
    SortedPages.Entry entry = pages.higher(prefix);
    while (entry != null && startsWithPrefix(entry.key())) {
      byte[] further = Arrays.copyOfRange(entry.key(), prefix.length + Integer.BYTES, prefixLengthOf(entry.key()));
      found.add(further);
      entry = pages.higher(of(further).under(ABOVE_ALL_TIMES));
    }
    return found;
  }

  byte[] get(byte[] position) {
    return pages.get(under(position));
  }

  /** Returns the greatest entry below {@code position}, or null. */
  SortedPages.Entry lower(byte[] position) {
    return own(pages.lower(under(position)));
  }

  /** Returns the least entry above {@code position}, or null. */
  SortedPages.Entry higher(byte[] position) {
    return own(pages.higher(under(position)));
  }

  /** Returns the entries from {@code from} to below {@code to} (null: to the end), in order. */
  List<SortedPages.Entry> range(byte[] from, byte[] to) {
    List<SortedPages.Entry> found = pages.range(under(from), under(to == null ? ABOVE_ALL_TIMES : to));
    found.replaceAll(this::own);
    return found;
  }

  boolean put(byte[] position, byte[] value) {
    return pages.put(under(position), value);
  }

  void removeBelow(byte[] position) {
    pages.remove(prefix, under(position));
  }

  private int prefixLengthOf(byte[] entryKey) {
    return prefix.length + Integer.BYTES + ByteBuffer.wrap(entryKey).getInt(prefix.length);
  }

  private byte[] under(byte[] position) {
    byte[] key = Arrays.copyOf(prefix, prefix.length + position.length);
    System.arraycopy(position, 0, key, prefix.length, position.length);
    return key;
  }

  private SortedPages.Entry own(SortedPages.Entry entry) {
    if (entry == null || !startsWithPrefix(entry.key())) {
      return null;
    }
    return new SortedPages.Entry(Arrays.copyOfRange(entry.key(), prefix.length, entry.key().length), entry.value());
  }

  private boolean startsWithPrefix(byte[] key) {
    return key.length >= prefix.length && Arrays.equals(key, 0, prefix.length, prefix, 0, prefix.length);
  }

  /** Returns the FNV-1a hash, mixed by the finalizer of MurmurHash3 (both are in the public domain). It is part of the state's format. */
  private static long hash(byte[] key) {
    long hash = 0xcbf29ce484222325L;
    for (byte b : key) {
      hash = (hash ^ (b & 0xff)) * 0x100000001b3L;
    }
    hash = (hash ^ (hash >>> 33)) * 0xff51afd7ed558ccdL;
    hash = (hash ^ (hash >>> 33)) * 0xc4ceb9fe1a85ec53L;
    return hash ^ (hash >>> 33);
  }
}
