"""Compilation of the text of Protobuf schemas, by the compiler protoc that the package grpcio-tools brings along.

It runs in this process, the connector's own, which then needs no right to start another program. The server bounds the
memory of this process and the time of its answers, so a text that harms the compiler harms its own source only.
"""

import os
import re
from base64 import b64decode
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory, TemporaryFile

import grpc_tools
from google.protobuf.descriptor import Descriptor, FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from grpc_tools import protoc

from caraway.dataplane.sources.decoding.registry import RegisteredSchema
from caraway.errors import InvalidInputError, shortened

# The name under which a schema is compiled, since the registry doesn't have the name of its file. No schema imports it.
MAIN = "caraway_source_record.proto"
# The files that registries don't hold, and that a schema may import: Google's, which come with protoc, and Confluent's.
KNOWN = (Path(grpc_tools.__file__).parent / "_proto", Path(__file__).parent / "protos")
# At most this many lines of protoc's messages are shown. Each has a place and a reason, and later errors follow from
# the first.
SHOWN_LINES = 3
LOG_LINE = re.compile(r"WARNING: All log messages|[IWEF]\d{4} ")


def compile_file(schema: RegisteredSchema) -> FileDescriptor:
    """Return the compiled file of a schema.

    Raises:
        InvalidInputError: The schema can't be compiled. The message is a clause for "a schema that ...".
    """
    # Some serializers register the compiled file, as base64, in place of its text.
    compiled: dict[str, FileDescriptorProto] = {}
    texts: dict[str, str] = {}
    for name, text in (*schema.imports, (MAIN, schema.text)):
        file = _compiled(name, text)
        if file is None:
            texts[name] = text
        else:
            compiled[name] = file
    wanted = [MAIN] if MAIN in texts else sorted({d for f in compiled.values() for d in f.dependency} - compiled.keys())
    files = _run(wanted, texts, compiled) if wanted else ()
    pool = DescriptorPool()
    try:
        for file in (*files, *(file for name, file in compiled.items() if name not in {each.name for each in files})):
            pool.Add(file)
        return pool.FindFileByName(MAIN)
    except (TypeError, KeyError) as error:
        raise InvalidInputError(f"can't be compiled: {shortened(str(error))}") from None


def _compiled(name: str, text: str) -> FileDescriptorProto | None:
    """Return the file whose compiled form a text is; None if it is the text of a file."""
    try:
        file = FileDescriptorProto.FromString(b64decode(text, validate=True))
    except (ValueError, DecodeError):
        return None
    file.name = name
    return file


def message_at(file: FileDescriptor, indexes: Sequence[int]) -> Descriptor:
    """Return the message type at a path: its number among those of the file, or of the type in which it is declared.

    `indexes` isn't empty.

    Raises:
        InvalidInputError: The file has no such type. The message is a clause for "a schema that ...".
    """
    declared = FileDescriptorProto()
    file.CopyToProto(declared)
    types, path = list(declared.message_type), []
    for index in indexes:
        if not 0 <= index < len(types):
            raise InvalidInputError(f"has no message type {list(indexes)}")
        path.append(types[index].name)
        # The indexes leave out the types of maps' entries, since these types aren't in the schema's text.
        types = [each for each in types[index].nested_type if not each.options.map_entry]
    found = file.message_types_by_name[path[0]]
    for name in path[1:]:
        found = found.nested_types_by_name[name]
    return found


def _write(root: Path, name: str, text: str) -> None:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\0" in name or "\\" in name or not path.parts:
        raise InvalidInputError(f"imports {shortened(name)!r}, which is no path of a file below others")
    file = root.joinpath(*path.parts)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    except (OSError, UnicodeEncodeError) as error:
        raise InvalidInputError(
            f"imports {shortened(name)!r}, which can't be written: {type(error).__name__}"
        ) from None


def _run(
    wanted: Sequence[str], texts: Mapping[str, str], compiled: Mapping[str, FileDescriptorProto]
) -> Sequence[FileDescriptorProto]:
    """Compile files, and return them with all that they import, each behind its imports."""
    with TemporaryDirectory(prefix="caraway-proto-") as folder:
        root = Path(folder)
        for name, text in texts.items():
            _write(root, name, text)
        made, there = root / "made.binpb", root / "compiled.binpb"
        options = [f"--proto_path={path}" for path in (root, *KNOWN)]
        options += ["--include_imports", f"--descriptor_set_out={made}"]
        if compiled:
            there.write_bytes(FileDescriptorSet(file=compiled.values()).SerializeToString())
            options.append(f"--descriptor_set_in={there}")
        said = _said(["protoc", *options, *wanted], root)
        if said is not None:
            raise InvalidInputError(f"can't be compiled: {said}")
        return FileDescriptorSet.FromString(made.read_bytes()).file


def _said(command: list[str], folder: Path) -> str | None:
    """Run protoc; return None if it succeeded, otherwise what it said, which it writes to this process's errors."""
    with TemporaryFile() as said:
        errors = os.dup(2)
        os.dup2(said.fileno(), 2)
        try:
            code = protoc.main(command)
        finally:
            os.dup2(errors, 2)
            os.close(errors)
        if code == 0:
            return None
        said.seek(0)
        text = said.read().decode(errors="replace").replace(f"{folder}/", "").replace(MAIN, "the schema")
    # Lines of protoc's log aren't its messages about the schema.
    messages = [line for line in text.strip().splitlines() if not LOG_LINE.match(line)]
    return shortened("; ".join(messages[:SHOWN_LINES]))
