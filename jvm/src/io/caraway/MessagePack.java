package io.caraway;

import java.nio.ByteBuffer;
import java.util.Arrays;

/** The part of MessagePack that records use, in its shortest forms: the bytes are those of Python's msgspec. */
final class MessagePack {
  private MessagePack() {}

  /** Appends values to a buffer that grows. */
  static final class Writer {
    private final boolean ofKeys;
    private byte[] buffer = new byte[128];
    private int size;

    Writer() {
      this(false);
    }

    /** With {@code ofKeys}, equal floats get equal bytes: -0.0 is written as 0.0, and all NaNs as one. */
    Writer(boolean ofKeys) {
      this.ofKeys = ofKeys;
    }

    byte[] toBytes() {
      return Arrays.copyOf(buffer, size);
    }

    void nil() {
      one(0xc0);
    }

    void bool(boolean value) {
      one(value ? 0xc3 : 0xc2);
    }

    void integer(long value) {
      if (value >= 0) {
        if (value < 0x80) {
          one((int) value);
        } else if (value < 0x100) {
          number(0xcc, value, 1);
        } else if (value < 0x10000) {
          number(0xcd, value, 2);
        } else if (value < 0x100000000L) {
          number(0xce, value, 4);
        } else {
          number(0xcf, value, 8);
        }
      } else if (value >= -32) {
        one((int) value);
      } else if (value >= Byte.MIN_VALUE) {
        number(0xd0, value, 1);
      } else if (value >= Short.MIN_VALUE) {
        number(0xd1, value, 2);
      } else if (value >= Integer.MIN_VALUE) {
        number(0xd2, value, 4);
      } else {
        number(0xd3, value, 8);
      }
    }

    void float64(double value) {
      number(0xcb, ofKeys ? Double.doubleToLongBits(value + 0.0) : Double.doubleToRawLongBits(value), 8);
    }

    void string(byte[] utf8) {
      if (utf8.length < 32) {
        one(0xa0 | utf8.length);
      } else {
        length(0xd9, utf8.length);
      }
      raw(utf8);
    }

    void binary(byte[] bytes) {
      length(0xc4, bytes.length);
      raw(bytes);
    }

    void array(int items) {
      container(0x90, 0xdc, items);
    }

    void map(int entries) {
      container(0x80, 0xde, entries);
    }

    private void container(int fixed, int tag, int items) {
      if (items < 16) {
        one(fixed | items);
      } else if (items < 0x10000) {
        number(tag, items, 2);
      } else {
        number(tag + 1, items, 4);
      }
    }

    private void length(int tag, int length) {
      if (length < 0x100) {
        number(tag, length, 1);
      } else if (length < 0x10000) {
        number(tag + 1, length, 2);
      } else {
        number(tag + 2, length, 4);
      }
    }

    private void number(int tag, long value, int width) {
      room(1 + width);
      buffer[size++] = (byte) tag;
      for (int shift = 8 * (width - 1); shift >= 0; shift -= 8) {
        buffer[size++] = (byte) (value >>> shift);
      }
    }

    private void one(int value) {
      room(1);
      buffer[size++] = (byte) value;
    }

    /** Appends bytes that are encoded already. */
    void raw(byte[] bytes) {
      room(bytes.length);
      System.arraycopy(bytes, 0, buffer, size, bytes.length);
      size += bytes.length;
    }

    private void room(int more) {
      if (buffer.length - size < more) {
        buffer = Arrays.copyOf(buffer, Math.max(2 * buffer.length, size + more));
      }
    }
  }

  /** Reads values one after the other; any valid form of a value is accepted, not only the shortest. */
  static final class Reader {
    private final ByteBuffer in;

    Reader(byte[] bytes) {
      in = ByteBuffer.wrap(bytes);
    }

    /** Skips a nil if one comes next, and returns whether it did. */
    boolean nil() {
      if ((in.get(in.position()) & 0xff) == 0xc0) {
        in.get();
        return true;
      }
      return false;
    }

    boolean bool() {
      int tag = tag();
      if (tag == 0xc2 || tag == 0xc3) {
        return tag == 0xc3;
      }
      throw unexpected("a bool", tag);
    }

    long integer() {
      int tag = tag();
      if (tag < 0x80 || tag >= 0xe0) {
        return (byte) tag;
      }
      switch (tag) {
        case 0xcc: return in.get() & 0xffL;
        case 0xcd: return in.getShort() & 0xffffL;
        case 0xce: return in.getInt() & 0xffffffffL;
        case 0xcf:
        case 0xd3: return in.getLong();
        case 0xd0: return in.get();
        case 0xd1: return in.getShort();
        case 0xd2: return in.getInt();
        default: throw unexpected("an integer", tag);
      }
    }

    /** Reads a float; an integer is accepted, since a writer may have shortened a whole number to one. */
    double float64() {
      int tag = in.get(in.position()) & 0xff;
      if (tag == 0xcb) {
        in.get();
        return in.getDouble();
      }
      if (tag == 0xca) {
        in.get();
        return in.getFloat();
      }
      return integer();
    }

    byte[] string() {
      int tag = tag();
      return take((tag & 0xe0) == 0xa0 ? tag & 0x1f : length(tag, 0xd9, "a string"));
    }

    byte[] binary() {
      return take(length(tag(), 0xc4, "a binary"));
    }

    int array() {
      return container(0x90, 0xdc, "an array");
    }

    int map() {
      return container(0x80, 0xde, "a map");
    }

    /** Returns the number of bytes that were read. */
    int position() {
      return in.position();
    }

    /** Skips one value, whatever it is; it may not be deeper nested than the bytes are long. */
    void skip() {
      for (long left = 1; left > 0; left--) {
        int tag = tag();
        if (tag < 0x80 || tag >= 0xe0) {
          continue;
        } else if (tag < 0x90) {
          left += 2L * (tag & 0x0f);
        } else if (tag < 0xa0) {
          left += tag & 0x0f;
        } else if (tag < 0xc0) {
          pass(tag & 0x1f);
        } else {
          switch (tag) {
            case 0xc0, 0xc2, 0xc3 -> { }
            case 0xc4, 0xd9 -> pass(in.get() & 0xff);
            case 0xc5, 0xda -> pass(in.getShort() & 0xffff);
            case 0xc6, 0xdb -> pass(in.getInt());
            case 0xcc, 0xd0 -> pass(1);
            case 0xcd, 0xd1 -> pass(2);
            case 0xca, 0xce, 0xd2 -> pass(4);
            case 0xcb, 0xcf, 0xd3 -> pass(8);
            case 0xdc -> left += in.getShort() & 0xffff;
            case 0xdd -> left += in.getInt() & 0xffffffffL;
            case 0xde -> left += 2L * (in.getShort() & 0xffff);
            case 0xdf -> left += 2L * (in.getInt() & 0xffffffffL);
            default -> throw unexpected("a value", tag);
          }
        }
      }
    }

    private void pass(int length) {
      in.position(in.position() + length);
    }

    private int container(int fixed, int wide, String what) {
      int tag = tag();
      if ((tag & 0xf0) == fixed) {
        return tag & 0x0f;
      }
      if (tag == wide) {
        return in.getShort() & 0xffff;
      }
      if (tag == wide + 1) {
        return in.getInt();
      }
      throw unexpected(what, tag);
    }

    private int length(int tag, int first, String what) {
      switch (tag - first) {
        case 0: return in.get() & 0xff;
        case 1: return in.getShort() & 0xffff;
        case 2: return in.getInt();
        default: throw unexpected(what, tag);
      }
    }

    private byte[] take(int length) {
      byte[] bytes = new byte[length];
      in.get(bytes);
      return bytes;
    }

    private int tag() {
      return in.get() & 0xff;
    }

    private IllegalArgumentException unexpected(String what, int tag) {
      return new IllegalArgumentException(
          String.format("record is not of its schema: %s expected, found tag 0x%02x at byte %d", what, tag, in.position() - 1));
    }
  }
}
