"""Safetensors files: refused in one way when their header lies, read whole or not at all."""

import json
import random
import time

import numpy as np
import pytest

pytest.importorskip("safetensors")

from conftest import tiny_tensors
from regard.models.tensors import SafeTensors


def made(header, data=b"\0" * 12, length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + data


def entry(dtype="F32", shape=(3,), offsets=(0, 12), **more):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets), **more}


def outcome(folder, content):
    """Reads all tensors, or says why not; anything but a ValueError of ours is a fault."""
    file = folder / "model.safetensors"
    file.write_bytes(content)
    started = time.perf_counter()
    try:
        tensors = SafeTensors(folder)
        for name in tensors.names:
            tensors._read(name)
    except ValueError as error:
        ours = str(error).startswith(f"{file} is corrupt or cut short: ")
        return "refused" if ours else f"another error: {error!r}"
    finally:
        assert time.perf_counter() - started < 5
    return "read"


def test_a_made_file_is_good_before_it_lies(tmp_path):
    assert outcome(tmp_path, made({"a": entry()})) == "read"
    assert outcome(tmp_path, made({"a": entry(), "__metadata__": {"format": "pt"}})) == "read"
    assert outcome(tmp_path, made({}, b"")) == "read"


TWICE = b'{"a":%s,"a":%s}' % ((json.dumps(entry()).encode(),) * 2)
LIES = {
    "length": (made({"a": entry()}, length=2**63), "its header must take 2 to .* bytes, got 9223"),
    "no length": (b"\1\0\0", "its header must take 2 to"),
    "no JSON": (made(b"{]"), "its header could not be read"),
    "no UTF-8": (made(b'{"\xff":1}'), "its header could not be read"),
    "deep": (made(b"[" * 10**5), "its header could not be read"),
    "big number": (made(b'{"a":' + b"9" * 5000 + b"}"), "its header could not be read"),
    "no object": (made([1]), "its header must be one JSON object"),
    "twice": (made(TWICE), "its header could not be read: 'a' must stand there once, got it twice"),
    "no entry": (made({"a": 1}), "tensor a must have dtype, shape and data_offsets"),
    "more": (made({"a": entry(more=1)}), "tensor a must have dtype, shape and data_offsets"),
    "dtype": (made({"a": entry("X8")}), "dtype of tensor a must be a known one, got 'X8'"),
    "dtype number": (made({"a": entry(3)}), "dtype of tensor a must be a known one, got 3"),
    "shape": (made({"a": entry(shape=(-3,))}), r"shape of tensor a must be sizes, got \[-3\]"),
    "shape of bools": (made({"a": entry(shape=(True,))}), "shape of tensor a must be sizes"),
    "many axes": (made({"a": entry(shape=(1,) * 65)}), "shape of tensor a must be sizes"),
    "size": (made({"a": entry(shape=(4,))}), "tensor a must take 16 bytes, got 12"),
    "overflow": (made({"a": entry(shape=(2**62, 4))}), "tensor a must take .* bytes, got 12"),
    "reversed": (made({"a": entry(offsets=(12, 0))}), "tensor a must take 12 bytes, got -12"),
    "negative": (made({"a": entry(offsets=(-12, 0))}), "data_offsets of tensor a must be two"),
    "three": (made({"a": entry(offsets=(0, 6, 12))}), "data_offsets of tensor a must be two"),
    "beyond": (made({"a": entry(offsets=(4, 16))}), "tensor a must start at 0, got 4"),
    "overlap": (made({"a": entry(), "b": entry()}), "tensor b must start at 12, got 0"),
    "rest": (made({"a": entry()}, b"\0" * 13), "its tensors must take the 13 bytes there are, got 12"),
    "cut": (made({"a": entry()}, b"\0" * 11), "its tensors must take the 11 bytes there are, got 12"),
    "notes": (made({"a": entry(), "__metadata__": {"a": 1}}), "__metadata__ must hold strings"),
}  # fmt: skip


@pytest.mark.parametrize("lie", LIES)
def test_a_false_header_is_refused_with_the_file_and_the_field(tmp_path, lie):
    content, says = LIES[lie]
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(ValueError, match=f"model.safetensors is corrupt or cut short: {says}"):
        SafeTensors(tmp_path)


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    from safetensors.numpy import save_file

    file = tmp_path_factory.mktemp("real") / "model.safetensors"
    save_file(tiny_tensors(), file, metadata={"format": "pt"})
    content = file.read_bytes()
    return content, 8 + int.from_bytes(content[:8], "little")


def test_cut_off_at_every_byte_of_the_header(tmp_path, real):
    content, header = real
    assert outcome(tmp_path, content) == "read"
    for n in range(header + 1):
        assert outcome(tmp_path, content[:n]) == "refused", n


def test_bytes_of_a_real_header_changed_at_random(tmp_path, real):
    content, header = real
    random.seed(0)
    seen = set()
    for _ in range(2000):
        changed = bytearray(content)
        for _ in range(random.choice((1, 1, 2, 8))):
            at = random.randrange(header)
            changed[at] = random.choice(
                (0, 34, 44, 48, 57, 91, 255, changed[at] ^ 1 << random.randrange(8))
            )
        seen.add(outcome(tmp_path, bytes(changed)))
    assert seen == {"refused", "read"}


# -------------------------------------------------------------------------------- shards


@pytest.fixture
def shards(tmp_path):
    from safetensors.numpy import save_file

    tensors = tiny_tensors()
    names = sorted(tensors)
    index = {name: f"model-0000{1 + i % 2}-of-00002.safetensors" for i, name in enumerate(names)}
    for file in set(index.values()):
        save_file({n: tensors[n] for n in names if index[n] == file}, tmp_path / file)
    return tmp_path, tensors, index


def test_shards_are_one(shards):
    folder, tensors, index = shards
    read = SafeTensors(folder, index)
    assert read.names == set(tensors)
    for name, tensor in tensors.items():
        np.testing.assert_array_equal(read.take(name, tensor.shape), tensor)


def test_a_shard_that_lacks_what_the_index_says(shards):
    folder, _, index = shards
    other = {"model-00001-of-00002.safetensors": "model-00002-of-00002.safetensors"}
    name = next(name for name in index if index[name] in other)
    with pytest.raises(ValueError, match="index.json: tensor .* must be in .*, which lacks it"):
        SafeTensors(folder, {**index, name: other[index[name]]})
    (folder / index[name]).unlink()
    with pytest.raises(ValueError, match=f"{index[name]} is missing"):
        SafeTensors(folder, index)


def test_a_tensor_in_two_shards(shards):
    from safetensors.numpy import save_file

    folder, tensors, index = shards
    save_file(tensors, folder / "model-00001-of-00002.safetensors")
    with pytest.raises(ValueError, match="a tensor stands in more than one shard"):
        SafeTensors(folder, index)
