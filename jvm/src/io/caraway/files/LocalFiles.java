package io.caraway.files;

import java.io.IOException;
import java.net.URI;
import java.nio.file.Files;
import java.nio.file.attribute.PosixFileAttributeView;
import java.nio.file.attribute.PosixFilePermissions;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

/**
 * Hadoop's local file system, without processes and without files of checksums.
 *
 * <p>Without its native library Hadoop runs {@code chmod} for each file and folder that it creates, and forking a JVM takes some 5 to 10 ms. A
 * checkpoint creates a dozen of them while its job stands still. Hadoop's checksums (a hidden file beside each) are left out as well: Spark's files
 * in a checkpoint have their own, and are renamed when they are complete.
 *
 * <p>The class must extend {@code LocalFileSystem}: {@code FileSystem.getLocal}, through which Spark copies files of RocksDB, casts to that.
 */
public final class LocalFiles extends LocalFileSystem {
  /** Creates the file system; Hadoop calls this for {@code fs.file.impl}. */
  public LocalFiles() {
    super(new Raw());
  }

  @Override
  public void initialize(URI name, Configuration conf) throws IOException {
    super.initialize(name, conf);
    setWriteChecksum(false);
    setVerifyChecksum(false);
  }

  private static final class Raw extends RawLocalFileSystem {
    @Override
    public void setPermission(Path path, FsPermission permission) throws IOException {
      var view = Files.getFileAttributeView(pathToFile(path).toPath(), PosixFileAttributeView.class);
      // Java can't set the sticky bit, so Hadoop does.
      if (view == null || permission.getStickyBit()) {
        super.setPermission(path, permission);
        return;
      }
      var symbols = permission.getUserAction().SYMBOL + permission.getGroupAction().SYMBOL + permission.getOtherAction().SYMBOL;
      view.setPermissions(PosixFilePermissions.fromString(symbols));
    }
  }
}
