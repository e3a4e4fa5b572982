import java.io.IOException;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.permission.FsPermission;

/** Does with a local file system what Spark does with a checkpoint: in a folder, with the class that is named. */
public final class LocalFilesLaws {
  public static void main(String[] args) throws IOException {
    var conf = new Configuration();
    conf.set("fs.file.impl", args[0]);
    var files = FileSystem.get(URI.create("file:///"), conf);
    var folder = new Path(args[1]);
    files.mkdirs(new Path(folder, "made"), new FsPermission((short) 0750));
    for (int mode = 0; mode <= 0777; mode++) {
      var path = new Path(folder, "mode-" + mode);
      write(files, path, "content of " + mode);
      files.setPermission(path, new FsPermission((short) mode));
    }
    write(files, new Path(folder, ".new.tmp"), "new");
    write(files, new Path(folder, "old"), "old");
    if (!files.rename(new Path(folder, ".new.tmp"), new Path(folder, "old"))) {
      throw new IOException("rename");
    }
    // Spark copies RocksDB's files so, by way of FileSystem.getLocal.
    files.copyFromLocalFile(new Path(folder, "old"), new Path(folder, "made/copy"));
    // An earlier version has left this checksum, which is that of another file.
    try (var in = files.open(new Path(folder, "stale"))) {
      System.out.print(new String(in.readAllBytes(), StandardCharsets.UTF_8));
    }
  }

  private static void write(FileSystem files, Path path, String text) throws IOException {
    try (var out = files.create(path, true)) {
      out.write(text.getBytes(StandardCharsets.UTF_8));
    }
  }
}
