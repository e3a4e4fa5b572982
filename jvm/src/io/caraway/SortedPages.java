package io.caraway;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;

/**
 * A sorted map of byte strings in numbered pages, which is a B+ tree.
 *
 * <p>Spark's map state can be read by exact key only. Keyed by page number it stores this tree, so that a row of a hot key with millions of rows
 * costs only a few pages. While the tree is open and small, each page is read once; it is written at most once in each {@link #flush}.
 */
final class SortedPages {
  /** The storage of pages. */
  interface Store {
    /** Returns the page, or null if there is none. */
    byte[] get(long page);

    void put(long page, byte[] bytes);

    void remove(long page);
  }

  record Entry(byte[] key, byte[] value) {}

  /** Decides which entries of a full page are still needed. */
  interface Pruner {
    /** Returns those of a page's entries that are needed; {@code entries} are in order and adjacent in the tree, and {@code added} must be kept. */
    List<Entry> prune(List<Entry> entries, Entry added);
  }

  private static final class Page {
    final boolean leaf;
    List<Entry> entries;
    // The size of the page in bytes when it was last read or written.
    int stored;

    Page(boolean leaf, List<Entry> entries) {
      this.leaf = leaf;
      this.entries = entries;
    }
  }

  // The most bytes of a page, which is rewritten as a whole for each row that is added: some ten rows of 100 bytes keep that cheap and the tree flat.
  // With 4 KiB a join was a quarter slower.
  private static final int PAGE_BYTES = 1024;
  // The encoded sizes of a page's header, and of an entry's two lengths.
  private static final int ENTRY_OVERHEAD = 8;
  private static final int HEADER_BYTES = 9;
  private static final long ROOT = 0;
  // The most bytes of pages that an open tree keeps in memory: the rows of a hot key touch any number of pages, and a page of long rows may have any
  // size.
  private static final int MOST_HELD_BYTES = 128 * PAGE_BYTES;
  // The memory of a page as an object, beside its bytes.
  private static final int OVERHEAD_BYTES = 512;

  private final Store store;
  private final Pruner pruner;
  private final Map<Long, Page> pages = new HashMap<>();
  private final Set<Long> dirty = new HashSet<>();
  // The number is stored in the root page.
  private long nextPage = ROOT + 1;
  private int held;

  SortedPages(Store store) {
    this(store, (entries, added) -> entries);
  }

  SortedPages(Store store, Pruner pruner) {
    this.store = store;
    this.pruner = pruner;
  }

  /** Returns the value of {@code key}, or null. */
  byte[] get(byte[] key) {
    Entry entry = lower(key, true, ROOT);
    return entry != null && Arrays.equals(entry.key, key) ? entry.value : null;
  }

  /** Returns the greatest entry below {@code key}, or null. */
  Entry lower(byte[] key) {
    return lower(key, false, ROOT);
  }

  /** Returns the least entry above {@code key}, or null. */
  Entry higher(byte[] key) {
    return higher(key, ROOT);
  }

  /** Returns the entries from {@code from} to below {@code to}, in order. */
  List<Entry> range(byte[] from, byte[] to) {
    List<Entry> found = new ArrayList<>();
    range(from, to, ROOT, found);
    return found;
  }

  /** Sets the value of {@code key}, and returns whether a page was split, at which the caller removes old entries. */
  boolean put(byte[] key, byte[] value) {
    page(ROOT);
    long pagesBefore = nextPage;
    Entry right = put(key, value, ROOT);
    if (right == null) {
      return nextPage != pagesBefore;
    }
    Page root = page(ROOT);
    long left = nextPage++;
    write(left, new Page(root.leaf, root.entries));
    Entry first = new Entry(root.entries.get(0).key, number(left));
    write(ROOT, new Page(false, new ArrayList<>(List.of(first, right))));
    return true;
  }

  /** Removes the entries from {@code from} to below {@code to}. */
  void remove(byte[] from, byte[] to) {
    remove(from, to, ROOT);
    Page root = page(ROOT);
    while (!root.leaf && root.entries.size() <= 1) {
      if (root.entries.isEmpty()) {
        root = new Page(true, new ArrayList<>());
      } else {
        long child = child(root, 0);
        root = page(child);
        drop(child);
      }
      write(ROOT, root);
    }
  }

  /** Writes the changed pages, and returns by how many bytes the pages in memory have grown since the last flush. */
  int flush() {
    for (long number : dirty) {
      Page page = pages.get(number);
      if (page == null) {
        store.remove(number);
        pages.remove(number);
      } else {
        byte[] bytes = encode(page);
        page.stored = bytes.length;
        store.put(number, bytes);
      }
    }
    dirty.clear();
    int before = held;
    held = OVERHEAD_BYTES * pages.size();
    for (Page page : pages.values()) {
      held += page.stored;
    }
    if (held > MOST_HELD_BYTES) {
      pages.clear();
      held = 0;
    }
    return held - before;
  }

  /** Returns the bytes of pages that were in memory after the last flush. */
  int held() {
    return held;
  }

  private Entry lower(byte[] key, boolean inclusive, long number) {
    Page page = page(number);
    int at = index(page, key, inclusive);
    if (page.leaf) {
      return at < 0 ? null : page.entries.get(at);
    }
    // The first separator may be above the entries of its child, and a child may have lost its least entries, so earlier children are searched, too.
    for (int i = Math.max(at, 0); i >= 0; i--) {
      Entry found = lower(key, inclusive, child(page, i));
      if (found != null) {
        return found;
      }
    }
    return null;
  }

  private Entry higher(byte[] key, long number) {
    Page page = page(number);
    int at = index(page, key, true);
    if (page.leaf) {
      return at + 1 < page.entries.size() ? page.entries.get(at + 1) : null;
    }
    for (int i = Math.max(at, 0); i < page.entries.size(); i++) {
      Entry found = higher(key, child(page, i));
      if (found != null) {
        return found;
      }
    }
    return null;
  }

  private void range(byte[] from, byte[] to, long number, List<Entry> found) {
    Page page = page(number);
    if (page.leaf) {
      for (int i = index(page, from, false) + 1; i < page.entries.size(); i++) {
        Entry entry = page.entries.get(i);
        if (Arrays.compareUnsigned(entry.key, to) >= 0) {
          return;
        }
        found.add(entry);
      }
      return;
    }
    for (int i = Math.max(index(page, from, true), 0); i < page.entries.size(); i++) {
      if (i > 0 && Arrays.compareUnsigned(page.entries.get(i).key, to) >= 0) {
        return;
      }
      range(from, to, child(page, i), found);
    }
  }

  /** Puts an entry into the subtree of page {@code number}; returns the separator of a new right sibling if the page was split, otherwise null. */
  private Entry put(byte[] key, byte[] value, long number) {
    Page page = page(number);
    int at = index(page, key, true);
    Entry added = new Entry(key, value);
    if (!page.leaf) {
      int i = Math.max(at, 0);
      added = put(key, value, child(page, i));
      if (added == null) {
        return null;
      }
      page.entries.add(i + 1, added);
    } else if (at >= 0 && Arrays.equals(page.entries.get(at).key, key)) {
      page.entries.set(at, added);
    } else {
      page.entries.add(at + 1, added);
    }
    dirty.add(number);
    if (size(page) > PAGE_BYTES && page.leaf) {
      page.entries = pruner.prune(page.entries, added);
    }
    if (size(page) <= PAGE_BYTES || page.entries.size() < 4) {
      return null;
    }
    // Rows mostly come in order, so a split after an append leaves a full page behind instead of a half full one.
    boolean appended = page.entries.get(page.entries.size() - 1) == added;
    int middle = appended ? page.entries.size() - 1 : page.entries.size() / 2;
    List<Entry> moved = new ArrayList<>(page.entries.subList(middle, page.entries.size()));
    page.entries = new ArrayList<>(page.entries.subList(0, middle));
    long right = nextPage++;
    dirty.add(ROOT);
    write(right, new Page(page.leaf, moved));
    return new Entry(moved.get(0).key, number(right));
  }

  private void remove(byte[] from, byte[] to, long number) {
    Page page = page(number);
    if (page.leaf) {
      int begin = index(page, from, false) + 1;
      int end = index(page, to, false) + 1;
      if (begin < end) {
        page.entries.subList(begin, end).clear();
        dirty.add(number);
      }
      return;
    }
    int begin = Math.max(index(page, from, true), 0);
    int end = Math.max(index(page, to, false), begin);
    for (int i = end; i >= begin; i--) {
      long child = child(page, i);
      // The first child may have entries below the range, and the last one entries above it.
      if (i > begin && i < end) {
        removeAll(child);
      } else {
        remove(from, to, child);
        if (!page(child).entries.isEmpty()) {
          continue;
        }
        drop(child);
      }
      page.entries.remove(i);
      dirty.add(number);
    }
  }

  private void removeAll(long number) {
    Page page = page(number);
    if (!page.leaf) {
      for (int i = 0; i < page.entries.size(); i++) {
        removeAll(child(page, i));
      }
    }
    drop(number);
  }

  /** Returns the index of the last entry below {@code key} (or equal, if {@code inclusive}), -1 if there is none. */
  private static int index(Page page, byte[] key, boolean inclusive) {
    int low = 0;
    int high = page.entries.size();
    while (low < high) {
      int middle = (low + high) >>> 1;
      int order = Arrays.compareUnsigned(page.entries.get(middle).key, key);
      if (order < 0 || (inclusive && order == 0)) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low - 1;
  }

  private static int size(Page page) {
    int size = HEADER_BYTES;
    for (Entry entry : page.entries) {
      size += ENTRY_OVERHEAD + entry.key.length + entry.value.length;
    }
    return size;
  }

  private Page page(long number) {
    Page page = pages.get(number);
    if (page == null) {
      byte[] bytes = store.get(number);
      page = bytes == null ? new Page(true, new ArrayList<>()) : decode(number, bytes);
      pages.put(number, page);
    }
    return page;
  }

  private void write(long number, Page page) {
    pages.put(number, page);
    dirty.add(number);
  }

  private void drop(long number) {
    pages.put(number, null);
    dirty.add(number);
  }

  private static long child(Page page, int index) {
    return ByteBuffer.wrap(page.entries.get(index).value).getLong();
  }

  private static byte[] number(long number) {
    return ByteBuffer.allocate(Long.BYTES).putLong(number).array();
  }

  private byte[] encode(Page page) {
    ByteBuffer out = ByteBuffer.allocate(size(page));
    out.put((byte) (page.leaf ? 1 : 0)).putLong(nextPage);
    for (Entry entry : page.entries) {
      out.putInt(entry.key.length).put(entry.key).putInt(entry.value.length).put(entry.value);
    }
    return out.array();
  }

  private Page decode(long number, byte[] bytes) {
    ByteBuffer in = ByteBuffer.wrap(bytes);
    boolean leaf = in.get() == 1;
    long storedNext = in.getLong();
    if (number == ROOT) {
      nextPage = storedNext;
    }
    List<Entry> entries = new ArrayList<>();
    while (in.hasRemaining()) {
      entries.add(new Entry(take(in), take(in)));
    }
    Page page = new Page(leaf, entries);
    page.stored = bytes.length;
    return page;
  }

  private static byte[] take(ByteBuffer in) {
    byte[] bytes = new byte[in.getInt()];
    in.get(bytes);
    return bytes;
  }
}
