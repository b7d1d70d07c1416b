#!/usr/bin/env python3
"""Writes gpt2/ and bert/ here: small models with random weights as Hugging Face's files hold them, and what
they answer, computed by PyTorch.

    python3 tests/models/huggingface/make_fixtures.py       (PyTorch 1.13 or later; nothing else)

Each folder has model.safetensors and config.json, as GPT2LMHeadModel and BertForMaskedLM save them, and
expected.safetensors with inputs and logits. The models are written down here from their papers: weights by
the names of those classes in a dictionary, the forward as plain functions on it.
"""

import json
import math
import struct
from pathlib import Path

import torch
import torch.nn.functional as F

HERE = Path(__file__).resolve().parent
TYPES = {torch.float32: "F32", torch.int64: "I64"}


def write_safetensors(path, tensors):
    """The format: 8 bytes of length, a JSON header, the bytes of the tensors."""
    header, body = {"__metadata__": {"format": "pt"}}, b""
    for name in sorted(tensors):
        tensor = tensors[name].contiguous()
        data = bytes(tensor.numpy().tobytes())
        header[name] = {
            "dtype": TYPES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [len(body), len(body) + len(data)],
        }
        body += data
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)


def random(*shape, deviation=0.15):
    return torch.randn(*shape) * deviation


def norm_of(weights, name, dim):
    weights[name + ".weight"] = 1 + random(dim)
    weights[name + ".bias"] = random(dim)


def norm(weights, name, x, epsilon):
    return F.layer_norm(x, x.shape[-1:], weights[name + ".weight"], weights[name + ".bias"], epsilon)


def heads_of(x, heads):  # (B, T, C) -> (B, H, T, C / H)
    return x.view(*x.shape[:2], heads, -1).transpose(1, 2)


def mix(query, key, value, visible):
    scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])
    mixed = scores.masked_fill(~visible, -math.inf).softmax(-1) @ value
    return mixed.transpose(1, 2).flatten(2)


# ---- GPT-2: norms first, a causal mask, matrices as (in, out) ----


def gpt2_config():
    return {
        "architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_layer": 2, "n_embd": 24, "n_head": 3,
        "n_positions": 12, "n_ctx": 12, "vocab_size": 37, "activation_function": "gelu_new",
        "layer_norm_epsilon": 1e-05, "attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0,
        "tie_word_embeddings": True,
    }  # fmt: skip


def gpt2_weights(c):
    dim, w = c["n_embd"], {}
    w["transformer.wte.weight"] = random(c["vocab_size"], dim)
    w["transformer.wpe.weight"] = random(c["n_positions"], dim)
    for i in range(c["n_layer"]):
        block = f"transformer.h.{i}."
        norm_of(w, block + "ln_1", dim)
        norm_of(w, block + "ln_2", dim)
        for name, wide_in, wide_out in [("attn.c_attn", 1, 3), ("attn.c_proj", 1, 1), ("mlp.c_fc", 1, 4), ("mlp.c_proj", 4, 1)]:
            w[block + name + ".weight"] = random(wide_in * dim, wide_out * dim)
            w[block + name + ".bias"] = random(wide_out * dim)
    norm_of(w, "transformer.ln_f", dim)
    return w


def gpt2_logits(c, w, tokens):
    length, epsilon = tokens.shape[1], c["layer_norm_epsilon"]
    x = w["transformer.wte.weight"][tokens] + w["transformer.wpe.weight"][:length]
    visible = torch.ones(length, length, dtype=torch.bool).tril()
    for i in range(c["n_layer"]):
        block = f"transformer.h.{i}."

        def affine(name, y):
            return y @ w[block + name + ".weight"] + w[block + name + ".bias"]

        q, k, v = affine("attn.c_attn", norm(w, block + "ln_1", x, epsilon)).chunk(3, -1)
        q, k, v = (heads_of(part, c["n_head"]) for part in (q, k, v))
        x = x + affine("attn.c_proj", mix(q, k, v, visible))
        y = affine("mlp.c_fc", norm(w, block + "ln_2", x, epsilon))
        y = 0.5 * y * (1 + torch.tanh(math.sqrt(2 / math.pi) * (y + 0.044715 * y**3)))  # gelu_new
        x = x + affine("mlp.c_proj", y)
    return norm(w, "transformer.ln_f", x, epsilon) @ w["transformer.wte.weight"].T


# ---- BERT: norms last, no mask, query, key and value apart, matrices as (out, in) ----


def bert_config():
    return {
        "architectures": ["BertForMaskedLM"], "model_type": "bert", "num_hidden_layers": 2, "hidden_size": 24,
        "intermediate_size": 96, "num_attention_heads": 3, "max_position_embeddings": 12, "type_vocab_size": 2,
        "vocab_size": 37, "hidden_act": "gelu", "layer_norm_eps": 1e-12, "attention_probs_dropout_prob": 0.0,
        "hidden_dropout_prob": 0.0,
    }  # fmt: skip


def bert_weights(c):
    dim, w = c["hidden_size"], {}

    def affine_of(name, wide_in, wide_out):
        w[name + ".weight"] = random(wide_out, wide_in)
        w[name + ".bias"] = random(wide_out)

    for table, rows in [("word", "vocab_size"), ("position", "max_position_embeddings"), ("token_type", "type_vocab_size")]:
        w[f"bert.embeddings.{table}_embeddings.weight"] = random(c[rows], dim)
    norm_of(w, "bert.embeddings.LayerNorm", dim)
    for i in range(c["num_hidden_layers"]):
        block = f"bert.encoder.layer.{i}."
        for part in ("query", "key", "value"):
            affine_of(block + "attention.self." + part, dim, dim)
        affine_of(block + "attention.output.dense", dim, dim)
        norm_of(w, block + "attention.output.LayerNorm", dim)
        affine_of(block + "intermediate.dense", dim, c["intermediate_size"])
        affine_of(block + "output.dense", c["intermediate_size"], dim)
        norm_of(w, block + "output.LayerNorm", dim)
    affine_of("cls.predictions.transform.dense", dim, dim)
    norm_of(w, "cls.predictions.transform.LayerNorm", dim)
    w["cls.predictions.bias"] = random(c["vocab_size"])
    return w


def bert_logits(c, w, tokens):
    length, epsilon = tokens.shape[1], c["layer_norm_eps"]

    def affine(name, y):
        return F.linear(y, w[name + ".weight"], w[name + ".bias"])

    x = w["bert.embeddings.word_embeddings.weight"][tokens]
    x = x + w["bert.embeddings.position_embeddings.weight"][:length] + w["bert.embeddings.token_type_embeddings.weight"][0]
    x = norm(w, "bert.embeddings.LayerNorm", x, epsilon)
    visible = torch.ones(length, length, dtype=torch.bool)
    for i in range(c["num_hidden_layers"]):
        block = f"bert.encoder.layer.{i}."
        q, k, v = (heads_of(affine(block + "attention.self." + part, x), c["num_attention_heads"]) for part in ("query", "key", "value"))
        y = affine(block + "attention.output.dense", mix(q, k, v, visible))
        x = norm(w, block + "attention.output.LayerNorm", x + y, epsilon)
        y = affine(block + "output.dense", F.gelu(affine(block + "intermediate.dense", x)))
        x = norm(w, block + "output.LayerNorm", x + y, epsilon)
    y = norm(w, "cls.predictions.transform.LayerNorm", F.gelu(affine("cls.predictions.transform.dense", x)), epsilon)
    return F.linear(y, w["bert.embeddings.word_embeddings.weight"], w["cls.predictions.bias"])


def main():
    torch.manual_seed(11)
    for name, config, weights_of, logits_of in [
        ("gpt2", gpt2_config(), gpt2_weights, gpt2_logits),
        ("bert", bert_config(), bert_weights, bert_logits),
    ]:
        folder = HERE / name
        folder.mkdir(exist_ok=True)
        weights = weights_of(config)
        tokens = torch.randint(config["vocab_size"], (3, 10))
        write_safetensors(folder / "model.safetensors", weights)
        write_safetensors(folder / "expected.safetensors", {"tokens": tokens, "logits": logits_of(config, weights, tokens)})
        (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")


if __name__ == "__main__":
    main()
