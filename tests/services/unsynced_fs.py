"""The program of a file system in memory that knows what a power failure would leave (`tests.services.power`).

Usage: python unsynced_fs.py FOLDER. It is mounted on the folder until a line "SHARE SEED" comes on its standard input.
Then it writes into the folder below what was synced: of each file the content at its last fsync, of each folder the
names at its last fsync. That is the least that POSIX promises. A system may have written any other page as well, in any
order: so each page that wasn't synced is there nevertheless with the probability SHARE, and so are a folder's names.
"""

import errno
import os
import random
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path, PurePosixPath
from typing import Any

import mfusepy

PAGE_BYTES = 4096


class Node:
    """A file, a folder or a symbolic link: its attributes, and its content now and as it was synced last."""

    def __init__(self, mode: int, owner: tuple[int, int]) -> None:
        self.mode, self.owner, self.links = mode, owner, 1
        self.changed_at = time.time_ns()
        # A folder has names, a file has bytes; a link's target is never changed.
        self.names: dict[str, Node] = {}
        self.synced_names: dict[str, Node] = {}
        self.content, self.synced = bytearray(), bytearray()
        self.unsynced: list[tuple[int, int]] = []
        self.target = ""

    def resize(self, size: int) -> None:
        """Cut the content, or append zeros."""
        if size > len(self.content):
            self.unsynced.append((len(self.content), size))
            self.content.extend(bytes(size - len(self.content)))
        del self.content[size:]
        self.changed_at = time.time_ns()

    def write(self, data: bytes, offset: int) -> None:
        """Overwrite a part of the content."""
        if offset > len(self.content):
            self.resize(offset)
        self.content[offset : offset + len(data)] = data
        self.unsynced.append((offset, offset + len(data)))
        self.changed_at = time.time_ns()

    def sync(self) -> None:
        """Keep the content, or the names, as they are now."""
        self.synced_names = dict(self.names)
        size = len(self.content)
        self.synced.extend(bytes(max(0, size - len(self.synced))))
        del self.synced[size:]
        for begin, end in self.unsynced:
            if begin < size:
                self.synced[begin : min(end, size)] = self.content[begin : min(end, size)]
        self.unsynced = []

    def left(self, share: float, chance: random.Random) -> bytes:
        """Return the content that a power failure leaves: what was synced, and a share of the pages that weren't."""
        left = bytearray(self.synced)
        numbers = {
            number
            for begin, end in self.unsynced
            for number in range(begin // PAGE_BYTES, -(-min(end, len(self.content)) // PAGE_BYTES))
        }
        for number in sorted(numbers):
            if chance.random() < share:
                begin = number * PAGE_BYTES
                page = self.content[begin : begin + PAGE_BYTES]
                left.extend(bytes(max(0, begin - len(left))))
                left[begin : begin + len(page)] = page
        return bytes(left)

    def left_names(self, share: float, chance: random.Random) -> "dict[str, Node]":
        """Return the names that a power failure leaves: journals keep all changes of a folder, or none."""
        return self.names if chance.random() < share else self.synced_names


class UnsyncedFiles(mfusepy.Operations):  # type: ignore[misc]
    """The operations of the file system; one at a time is called."""

    use_ns = True

    def __init__(self) -> None:
        self.root = Node(stat.S_IFDIR | 0o700, (os.getuid(), os.getgid()))
        self._open: dict[int, Node] = {}
        self._next = 1

    def _find(self, path: str) -> Node:
        node = self.root
        for name in PurePosixPath(path).parts[1:]:
            if name not in node.names:
                raise mfusepy.FuseOSError(errno.ENOENT)
            node = node.names[name]
        return node

    def _place(self, path: str) -> tuple[Node, str]:
        return self._find(str(PurePosixPath(path).parent)), PurePosixPath(path).name

    def _node(self, path: str, fh: int | None) -> Node:
        return self._open[fh] if fh in self._open else self._find(path)

    def _add(self, path: str, mode: int) -> Node:
        folder, name = self._place(path)
        folder.names[name] = node = Node(mode, mfusepy.fuse_get_context()[:2])
        return node

    def _handle(self, node: Node) -> int:
        self._next += 1
        self._open[self._next] = node
        return self._next

    def getattr(self, path: str, fh: int | None = None) -> dict[str, Any]:
        node = self._node(path, fh)
        size = len(node.content) or len(node.target)
        known = {"st_mode": node.mode, "st_nlink": node.links, "st_size": size, "st_blocks": size // 512}
        owner = {"st_uid": node.owner[0], "st_gid": node.owner[1]}
        times = dict.fromkeys(("st_atime", "st_mtime", "st_ctime"), node.changed_at)
        return {**known, **owner, **times}

    def readdir(self, path: str, fh: int) -> Any:
        return [".", "..", *self._find(path).names]

    def mkdir(self, path: str, mode: int) -> int:
        self._add(path, stat.S_IFDIR | mode)
        return 0

    def mknod(self, path: str, mode: int, dev: int) -> int:
        self._add(path, mode)
        return 0

    def create(self, path: str, mode: int, fi: Any = None) -> int:
        return self._handle(self._add(path, stat.S_IFREG | stat.S_IMODE(mode)))

    def open(self, path: str, flags: int) -> int:
        return self._handle(self._find(path))

    def release(self, path: str, fh: int) -> int:
        self._open.pop(fh, None)
        return 0

    def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
        return bytes(self._node(path, fh).content[offset : offset + size])

    def write(self, path: str, data: bytes, offset: int, fh: int) -> int:
        self._node(path, fh).write(data, offset)
        return len(data)

    def truncate(self, path: str, length: int, fh: int | None = None) -> int:
        self._node(path, fh).resize(length)
        return 0

    def fallocate(self, path: str, mode: int, offset: int, size: int, fh: int) -> int:
        if mode:
            raise mfusepy.FuseOSError(errno.EOPNOTSUPP)
        node = self._node(path, fh)
        node.resize(max(len(node.content), offset + size))
        return 0

    def fsync(self, path: str, datasync: int, fh: int) -> int:
        self._node(path, fh).sync()
        return 0

    def fsyncdir(self, path: str, datasync: int, fh: int) -> int:
        self._find(path).sync()
        return 0

    def unlink(self, path: str) -> int:
        folder, name = self._place(path)
        folder.names.pop(name).links -= 1
        return 0

    def rmdir(self, path: str) -> int:
        folder, name = self._place(path)
        if folder.names[name].names:
            raise mfusepy.FuseOSError(errno.ENOTEMPTY)
        del folder.names[name]
        return 0

    def rename(self, old: str, new: str) -> int:
        (folder, name), (other, new_name) = self._place(old), self._place(new)
        other.names[new_name] = folder.names.pop(name)
        return 0

    def link(self, target: str, source: str) -> int:
        folder, name = self._place(target)
        folder.names[name] = node = self._find(source)
        node.links += 1
        return 0

    def symlink(self, target: str, source: str) -> int:
        self._add(target, stat.S_IFLNK | 0o777).target = source
        return 0

    def readlink(self, path: str) -> str:
        return self._find(path).target

    def chmod(self, path: str, mode: int) -> int:
        node = self._find(path)
        node.mode = stat.S_IFMT(node.mode) | stat.S_IMODE(mode)
        return 0

    def chown(self, path: str, uid: int, gid: int) -> int:
        node = self._find(path)
        node.owner = (node.owner[0] if uid == -1 else uid, node.owner[1] if gid == -1 else gid)
        return 0

    def utimens(self, path: str, times: tuple[int, int] | None = None) -> int:
        self._find(path).changed_at = time.time_ns() if times is None else times[1]
        return 0

    def statfs(self, path: str) -> dict[str, int]:
        return {"f_bsize": 4096, "f_frsize": 4096, "f_blocks": 1 << 24, "f_bavail": 1 << 23, "f_bfree": 1 << 23}


def write_left(node: Node, path: Path, share: float, chance: random.Random) -> None:
    """Write what a power failure leaves of a folder's content."""
    for name, child in node.left_names(share, chance).items():
        place = path / name
        if stat.S_ISDIR(child.mode):
            place.mkdir()
            write_left(child, place, share, chance)
        elif stat.S_ISLNK(child.mode):
            place.symlink_to(child.target)
            continue
        else:
            place.write_bytes(child.left(share, chance))
        os.chown(place, *child.owner)
        place.chmod(stat.S_IMODE(child.mode))


def main(folder: Path) -> None:
    """Serve the file system, until the plug is pulled."""
    files = UnsyncedFiles()
    told: list[str] = []

    def await_end() -> None:
        told.extend(sys.stdin.readline().split())
        subprocess.run(["umount", "--lazy", str(folder)], check=True)

    threading.Thread(target=await_end, daemon=True).start()
    options = {"nothreads": True, "hard_remove": True, "allow_other": True, "default_permissions": True}
    mfusepy.FUSE(files, str(folder), foreground=True, **options)
    share, seed = told
    write_left(files.root, folder, float(share), random.Random(seed))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
