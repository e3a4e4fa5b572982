package io.caraway;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.attribute.PosixFileAttributeView;
import java.nio.file.attribute.PosixFilePermissions;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

/**
 * Hadoop's local file system, which sets permissions itself.
 *
 * <p>Without Hadoop's native library the original starts a process ({@code chmod}) for each file and folder that it makes, and forking a
 * JVM takes some 10 ms. A checkpoint makes a dozen of them while its job stands still. Checksum files beside each file are left out as
 * well: RocksDB and Spark's change logs have their own.
 */
public final class LocalFiles extends RawLocalFileSystem {
  @Override
  public void setPermission(Path path, FsPermission permission) throws IOException {
    var view = Files.getFileAttributeView(pathToFile(path).toPath(), PosixFileAttributeView.class);
    if (view == null) {
      super.setPermission(path, permission);
      return;
    }
    var symbols = permission.getUserAction().SYMBOL + permission.getGroupAction().SYMBOL + permission.getOtherAction().SYMBOL;
    view.setPermissions(PosixFilePermissions.fromString(symbols));
  }
}
