"""Where a model comes from: a folder in Hugging Face layout, or a GGUF file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from . import gguf_names
from .chat import Manner
from .extra import needed
from .gguf_file import GGUF
from .settings import Settings, read_json
from .tensors import GGUFTensors, SafeTensors, Tensors
from .vocabulary import token_id, tokenizer_of

if TYPE_CHECKING:
    from tokenizers import Tokenizer

__all__ = ["Source", "open_source"]


class Source(NamedTuple):
    """All that a family needs to make a model."""

    folder: Path
    settings: Settings
    tensors: Tensors
    tokenizer: Tokenizer
    manner: Manner


def open_source(place: Path) -> Source:
    """What a folder or a GGUF file holds, or an error that names what is wrong."""
    if place.is_file():
        return _from_gguf(place)
    ggufs = sorted(place.glob("*.gguf"))
    if (place / "config.json").is_file() or len(ggufs) != 1:
        return _from_folder(place)
    return _from_gguf(ggufs[0])


def _from_folder(folder: Path) -> Source:
    settings = Settings(folder / "config.json")
    tensors = SafeTensors(folder, _shards(folder))
    tokenizer = _read_tokenizer(folder / "tokenizer.json")
    return Source(folder, settings, tensors, tokenizer, _manner(folder, settings))


def _from_gguf(file: Path) -> Source:
    gguf = GGUF(file)
    settings, spelled = gguf_names.translate(gguf)
    tokenizer = tokenizer_of(file, gguf.metadata)
    tensors = GGUFTensors(gguf, spelled)
    manner = _manner_of_gguf(gguf, tokenizer)
    gguf.metadata.clear()  # a hundred thousand strings that are of no more use
    return Source(file, settings, tensors, tokenizer, manner)


def _shards(folder: Path) -> dict[str, str] | None:
    """Which file holds which tensor, where there are several; they lie in the folder itself."""
    file = folder / "model.safetensors.index.json"
    if (folder / "model.safetensors").is_file() or not file.is_file():
        return None
    index = read_json(file)
    names = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(names, dict) or not names:
        raise ValueError(f"{file}: weight_map must be an object, got {names!r:.80}")
    for name, shard in names.items():
        if not isinstance(shard, str) or Path(shard).name != shard or "\\" in shard:
            raise ValueError(f"{file}: weight_map must name files beside it, got {shard!r:.80}")
        if not shard.endswith(".safetensors"):
            raise ValueError(f"{file}: {name} must be in a .safetensors file, got {shard!r:.80}")
    return names


def _read_tokenizer(file: Path) -> Tokenizer:
    """The tokenizer, with its own cutting and padding switched off."""
    Tokenizer = needed("tokenizers").Tokenizer
    if not file.is_file():
        raise ValueError(f"{file} is missing: a model's folder must have it")
    try:
        tokenizer = Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises bare Exception
        raise ValueError(f"{file} could not be read: {error}") from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _manner(folder: Path, settings: Settings) -> Manner:
    """End tokens and chat template of a folder."""
    generation, stated = folder / "generation_config.json", folder / "tokenizer_config.json"
    given = Settings(generation) if generation.is_file() else settings
    ends = given.value("eos_token_id", settings.value("eos_token_id", []))
    ends = ends if isinstance(ends, list) else [ends]
    if not all(isinstance(i, int) and not isinstance(i, bool) for i in ends):
        raise given.refuse("eos_token_id", "must be an int or a list of them")
    said = Settings(stated) if stated.is_file() else Settings(stated, {})
    template, alone = said.value("chat_template"), folder / "chat_template.jinja"
    if alone.is_file():
        template = alone.read_text(encoding="utf-8")
    if isinstance(template, list):  # several, by name
        named = {str(t.get("name")): t.get("template") for t in template if isinstance(t, dict)}
        template = named.get("default")
    if template is not None and not isinstance(template, str):
        raise said.refuse("chat_template", "must be a string")
    specials = {name: _content(said.value(name)) for name in ("bos_token", "eos_token")}
    return Manner(folder, frozenset(ends), template, specials)


def _content(token: Any) -> str:
    """A special token, which some files give as an object."""
    if isinstance(token, dict):
        token = token.get("content")
    return token if isinstance(token, str) else ""


def _manner_of_gguf(gguf: GGUF, tokenizer: Tokenizer) -> Manner:
    count = tokenizer.get_vocab_size()
    ids = {name: token_id(gguf.file, gguf.metadata, name, count) for name in ("bos", "eos", "eot")}
    template = gguf.metadata.get("tokenizer.chat_template")
    if template is not None and not isinstance(template, str):
        raise ValueError(f"{gguf.file}: tokenizer.chat_template must be a string")
    specials = {
        f"{name}_token": (tokenizer.id_to_token(i) or "") if (i := ids[name]) is not None else ""
        for name in ("bos", "eos")
    }
    ends = frozenset(i for name in ("eos", "eot") if (i := ids[name]) is not None)
    return Manner(gguf.file, ends, template, specials)
