"""A tiny language model with random weights, in the form of a checkpoint on Hugging Face.

Every word of a prompt is one token, and no token ends an answer: answers have the length that a request asks for.
"""

import json
import random
import struct
from collections.abc import Iterator
from pathlib import Path

WORDS = 256
HIDDEN, HEAD, LAYERS, LONGEST = 64, 32, 1, 131_072
REVISION = "0" * 40
CHAT = "{% for message in messages %}{{ message['content'] }} {% endfor %}"


def write(hub: Path, name: str) -> None:
    """Writes the model into the cache of Hugging Face's client, under the name of a model there."""
    cached = hub / f"models--{name.replace('/', '--')}"
    folder = cached / "snapshots" / REVISION
    folder.mkdir(parents=True)
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text(REVISION)
    for file, content in (("config.json", config()), ("tokenizer.json", tokenizer())):
        (folder / file).write_text(json.dumps(content))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": CHAT}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    (folder / "model.safetensors").write_bytes(weights())


def config() -> dict[str, object]:
    """https://huggingface.co/docs/transformers/model_doc/llama"""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": HIDDEN,
        "intermediate_size": HIDDEN,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HIDDEN // HEAD,
        "num_key_value_heads": 1,
        "head_dim": HEAD,
        "vocab_size": WORDS,
        "max_position_embeddings": LONGEST,
        "bos_token_id": None,
        "eos_token_id": None,
        "torch_dtype": "bfloat16",
    }


def tokenizer() -> dict[str, object]:
    """https://huggingface.co/docs/tokenizers/api/models#tokenizers.models.WordLevel"""
    vocabulary = {"<unk>": 0, **{f"w{number}": number for number in range(1, WORDS)}}
    return {
        "version": "1.0",
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": None,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "<unk>"},
    }


def shapes() -> Iterator[tuple[str, list[int]]]:
    """Names and shapes of the weights of Llama."""
    yield "model.embed_tokens.weight", [WORDS, HIDDEN]
    for layer in range(LAYERS):
        block = f"model.layers.{layer}"
        for part, rows in (("q", HIDDEN), ("k", HEAD), ("v", HEAD), ("o", HIDDEN)):
            yield f"{block}.self_attn.{part}_proj.weight", [rows, HIDDEN]
        for part in ("gate", "up", "down"):
            yield f"{block}.mlp.{part}_proj.weight", [HIDDEN, HIDDEN]
        yield f"{block}.input_layernorm.weight", [HIDDEN]
        yield f"{block}.post_attention_layernorm.weight", [HIDDEN]
    yield "model.norm.weight", [HIDDEN]
    yield "lm_head.weight", [WORDS, HIDDEN]


def weights() -> bytes:
    """https://huggingface.co/docs/safetensors/index#format"""
    source, header, body = random.Random(0), {}, bytearray()
    for name, shape in shapes():
        begin, count = len(body), shape[0] * (shape[1] if len(shape) > 1 else 1)
        # A bfloat16 is the upper half of a float32.
        body += b"".join(struct.pack("<f", source.gauss(0, 0.1))[2:] for _ in range(count))
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [begin, len(body)]}
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + bytes(body)
