"""GGUF files: read as their authors' library reads them, and refused in one way when they lie."""

import random
import struct
import time

import numpy as np
import pytest

gguf = pytest.importorskip("gguf")

from regard.models.gguf_file import GGUF  # noqa: E402
from tiny import close, gguf_writer, write_llama_gguf  # noqa: E402

# ------------------------------------------------------------------ a writer that may lie


def string(text):
    encoded = text if isinstance(text, bytes) else text.encode()
    return struct.pack("<Q", len(encoded)) + encoded


def key(name, kind, value):
    return string(name) + struct.pack("<I", kind) + value


def info(name="a", shape=(3,), kind=0, offset=0):
    return (
        string(name)
        + struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
        + struct.pack("<IQ", kind, offset)
    )


def made(keys=(), infos=(), data=b"", counts=None, magic=b"GGUF", version=3, alignment=32):
    counts = counts or (len(infos), len(keys))
    head = magic + struct.pack("<IQQ", version, *counts) + b"".join(keys) + b"".join(infos)
    return head + b"\0" * (-len(head) % alignment) + data


TWELVE = struct.pack("<3f", 1, 2, 3)


def read(tmp_path, content):
    file = tmp_path / "made.gguf"
    file.write_bytes(content)
    return GGUF(file)


# ------------------------------------------------------------------------------ good files


def test_every_type_of_metadata_and_tensor_is_read_as_the_library_reads_it(tmp_path):
    file = tmp_path / "all.gguf"
    writer = gguf_writer(file, "some", alignment=64)
    numbers = {"uint8": 200, "int8": -3, "uint16": 60000, "int16": -300, "uint32": 2**32 - 1,
               "int32": -5, "uint64": 2**63, "int64": -(2**60), "float32": 0.5, "float64": 0.1,
               "bool": True}  # fmt: skip
    for name, value in numbers.items():
        getattr(writer, f"add_{name}")(f"n.{name}", value)
    writer.add_string("text", "snow ☃")
    writer.add_array("words", ["a", "", "ü"])
    writer.add_array("counts", [3, -1, 7])
    writer.add_array("yes", [True, False])
    rng = np.random.default_rng(0)
    for kind in ("F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"):
        qtype = gguf.GGMLQuantizationType[kind]
        tensor = gguf.quantize(rng.standard_normal((3, 5, 64)).astype(np.float32), qtype)
        writer.add_tensor(kind, tensor, raw_dtype=qtype)
    close(writer)
    ours, theirs = GGUF(file), gguf.GGUFReader(file)
    for name, field in theirs.fields.items():
        if not name.startswith("GGUF."):
            assert np.array_equal(ours.metadata[name], field.contents()), name
    assert ours.metadata["text"] == "snow ☃"
    assert ours.metadata["n.bool"] is True
    for tensor in theirs.tensors:
        assert ours.tensors[tensor.name].shape == (3, 5, 64)
        held = np.ascontiguousarray(ours.rows(tensor.name)).view(np.uint8)
        assert np.array_equal(held.ravel(), tensor.data.view(np.uint8).ravel())
        expected = gguf.dequantize(tensor.data, tensor.tensor_type)
        np.testing.assert_array_equal(ours.floats(tensor.name), expected.reshape(3, 5, 64))


def test_the_real_file_is_read_as_the_library_reads_it(smollm2_file):
    ours, theirs = GGUF(smollm2_file), gguf.GGUFReader(smollm2_file)
    assert set(ours.metadata) == {n for n in theirs.fields if not n.startswith("GGUF.")}
    assert (
        ours.metadata["tokenizer.ggml.tokens"] == theirs.fields["tokenizer.ggml.tokens"].contents()
    )
    assert list(ours.tensors) == [tensor.name for tensor in theirs.tensors]
    for tensor in theirs.tensors:
        stored = ours.tensors[tensor.name]
        assert (stored.start, stored.size) == (tensor.data_offset, tensor.n_bytes)


def test_a_file_without_tensors_and_keys(tmp_path):
    empty = read(tmp_path, made())
    assert (empty.metadata, empty.tensors) == ({}, {})


def test_a_made_file_is_good_before_it_lies(tmp_path):
    gguf_file = read(tmp_path, made([key("k", 4, struct.pack("<I", 7))], [info()], TWELVE))
    assert gguf_file.metadata == {"k": 7}
    np.testing.assert_array_equal(gguf_file.floats("a"), [1, 2, 3])


# ------------------------------------------------------------------------------- false ones

ALIGN = "general.alignment"
LIES = {
    "magic": (made(magic=b"GGML"), "magic must be GGUF"),
    "version": (made(version=1), "version must be 2 or 3, got 1"),
    "byte order": (made(version=3 << 24), "version must be 2 or 3, got .* the other byte order"),
    "tensor count": (made(counts=(2**63, 0)), "tensor count must be at most 0, got 9223372036854775808"),
    "key count": (made(counts=(0, 2**64 - 1)), "key count must be at most 0"),
    "a key too few": (made(counts=(0, 1), data=b"\0" * 64), "name of key 0 must be printable"),
    "string": (made([string("k") + struct.pack("<IQ", 8, 2**62)]), "length of k must be at most .*, got 4611686018427387904"),
    "long name": (made([struct.pack("<Q", 2**40) + b"k" * 40]), "length of name of key 0 must be at most"),
    "not UTF-8": (made([key("k", 8, string(b"\xff"))]), "k must be UTF-8"),
    "name with NUL": (made([key("a\0b", 0, b"\1")]), "name of key 0 must be printable"),
    "type": (made([key("k", 13, b"\0" * 8)]), "type of k must be one of GGUF's, 0 to 12, got 13"),
    "bool": (made([key("k", 7, b"\2")]), "k must be 0 or 1, as a bool is, got 2"),
    "array": (made([key("k", 9, struct.pack("<IQ", 10, 2**61))]), "k takes 18446744073709551616 bytes"),
    "strings": (made([key("k", 9, struct.pack("<IQ", 8, 2**60))]), "length of k must be at most"),
    "arrays": (made([key("k", 9, struct.pack("<IQ", 9, 1))]), "k must be an array of numbers or strings"),
    "twice": (made([key("k", 0, b"\1")] * 2), "k must stand there once, got it twice"),
    "alignment 0": (made([key(ALIGN, 4, b"\0" * 4)]), "general.alignment must be a power of two, got 0"),
    "alignment 24": (made([key(ALIGN, 4, b"\x18\0\0\0")]), "a power of two, got 24"),
    "alignment text": (made([key(ALIGN, 8, string("32"))]), "a power of two, got '32'"),
    "alignment float": (made([key(ALIGN, 6, struct.pack("<f", 32))]), "a power of two, got 32.0"),
    "alignment huge": (made([key(ALIGN, 4, struct.pack("<I", 2**31))]), "a power of two, got 2147483648"),
    "no axes": (made([], [info(shape=())], TWELVE), "axes of tensor a must be 1 to 4, got 0"),
    "many axes": (made([], [string("a") + struct.pack("<I", 2**31)], TWELVE), "axes of tensor a must be"),
    "axis of 0": (made([], [info(shape=(3, 0))], TWELVE), r"tensor a .* must have rows of 1, got \(0, 3\)"),
    "overflow": (made([], [info(shape=(2**62, 2**62, 4))], TWELVE), "tensor a takes .* bytes at byte"),
    "kind": (made([], [info(kind=4)], TWELVE), "type of tensor a must be a known one, got 4"),
    "block": (made([], [info(shape=(33,), kind=2)], b"\0" * 99), r"Q4_0 must have rows of 32, got \(33,\)"),
    "offset": (made([], [info(offset=4)], TWELVE), "offset of tensor a must be a multiple of 32, got 4"),
    "beyond": (made([], [info(offset=2**40)], TWELVE), "tensor a takes 12 bytes at byte"),
    "cut short": (made([], [info()], TWELVE[:-1]), "tensor a takes 12 bytes at byte 64, of 75"),
    "overlap": (made([], [info(), info("b")], TWELVE), "offset of tensor b must be 12 or more, behind a, got 0"),
    "same name": (made([], [info(), info(offset=32)], b"\0" * 64), "tensor a must stand there once"),
}  # fmt: skip


@pytest.mark.parametrize("lie", LIES)
def test_a_false_header_is_refused_with_the_file_and_the_field(tmp_path, lie):
    content, says = LIES[lie]
    with pytest.raises(ValueError, match=f"made.gguf: .*{says}"):
        read(tmp_path, content)


def outcome(tmp_path, content):
    """Reads it all, or says why not; anything but a ValueError of ours is a fault."""
    started = time.perf_counter()
    try:
        found = read(tmp_path, content)
        for name in found.tensors:
            found.rows(name)
    except ValueError as error:
        return "refused" if "made.gguf: " in str(error) else f"another error: {error!r}"
    finally:
        assert time.perf_counter() - started < 5
    return "read"


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    """A whole small model: its bytes, and where its header ends."""
    file = write_llama_gguf(tmp_path_factory.mktemp("gguf") / "tiny.gguf", "Q4_1")
    return file.read_bytes(), min(at.start for at in GGUF(file).tensors.values())


@pytest.mark.slow
def test_cut_off_at_every_byte_of_the_header(tmp_path, real):
    content, header = real
    for n in range(header + 1):
        assert outcome(tmp_path, content[:n]) == "refused", n


def test_bytes_of_a_real_file_changed_at_random(tmp_path, real):
    content, header = real
    random.seed(0)
    seen = set()
    for _ in range(1500):
        changed = bytearray(content)
        for _ in range(random.choice((1, 1, 2, 8))):
            at = random.randrange(header)
            changed[at] = random.choice(
                (0, 1, 127, 128, 255, changed[at] ^ 1 << random.randrange(8))
            )
        seen.add(outcome(tmp_path, bytes(changed)))
    assert seen == {"refused", "read"}


def test_numbers_of_a_real_header_made_extreme(tmp_path, real):
    content, header = real
    random.seed(1)
    for _ in range(1000):
        at = random.randrange(header - 8)
        wild = random.choice((2**64 - 1, 2**63, 2**62, 2**32, 2**31, 0, 1, 2**61 + 1))
        made_wild = content[:at] + struct.pack("<Q", wild) + content[at + 8 :]
        assert outcome(tmp_path, made_wild) in ("refused", "read")


def test_a_false_count_takes_no_memory(tmp_path):
    import tracemalloc

    tracemalloc.start()
    for content, _ in LIES.values():
        assert outcome(tmp_path, content) == "refused"
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**21
