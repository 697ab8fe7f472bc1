"""The trainer's models, made of `torch.nn`, and how to load one that `train export` wrote.

    from model import load
    model, vocabulary = load("model.safetensors")
    logits = model(torch.tensor([vocabulary.encode(b"KING.")]))

Needs PyTorch 2.5 or later, and to load a file NumPy and the package safetensors. The sizes and the tokens of a model are in the metadata
of its file, as JSON under the key `config`: `ExportedConfig` in `examples/trainer/src/train/checkpoint/export.rs` says what each field
means. Tensors have the names of their modules here, but for the matrix of the head.
"""

import json
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F


@dataclass
class Config:
    """The fields of the metadata that make a model."""

    architecture: str
    vocab: int
    context: int
    width: int
    heads: int
    kv_heads: int
    layers: int
    hidden: int
    eps: float = 1e-5
    rope_base: float | None = 10000.0
    experts: int = 0

    @classmethod
    def told(cls, metadata):
        """That of a file with this metadata."""
        fields = json.loads(metadata["config"])
        return cls(**{field: fields[field] for field in cls.__dataclass_fields__})

    def norm(self):
        kind = nn.RMSNorm if self.architecture == "llama" else nn.LayerNorm
        return kind(self.width, eps=self.eps)


class FeedForward(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.up = nn.Linear(config.width, config.hidden)
        self.down = nn.Linear(config.hidden, config.width)

    def forward(self, h):
        return self.down(F.gelu(self.up(h), approximate="tanh"))


class Experts(nn.Module):
    """Each token goes to its two most probable experts, whose outputs count as much as their probabilities."""

    GROUP, TOP, BALANCE = 8, 2, 0.01

    def __init__(self, config):
        super().__init__()
        self.router = nn.Linear(config.width, config.experts, bias=False)
        self.expert = nn.ModuleList(FeedForward(config) for _ in range(config.experts))

    def forward(self, h):
        probabilities = self.router(h).softmax(-1)
        gates, chosen = probabilities.topk(self.TOP, -1)
        weights = torch.zeros_like(probabilities).scatter(-1, chosen, gates)
        self.auxiliary = self.balance(probabilities, chosen)
        return sum(weights[..., i : i + 1] * expert(h) for i, expert in enumerate(self.expert))

    def balance(self, probabilities, chosen):
        """The mean over groups of consecutive tokens: experts * sum of (share of choices * mean probability)."""
        experts = probabilities.shape[-1]
        mean = probabilities.view(-1, self.GROUP, experts).mean(1)
        share = F.one_hot(chosen, experts).view(-1, self.GROUP * self.TOP, experts).to(mean.dtype).mean(1)
        return self.BALANCE * experts * (share * mean).sum(-1).mean()


class GptBlock(nn.Module):
    def __init__(self, config):
        super().__init__()
        width = config.width
        self.heads = config.heads
        self.norm1 = config.norm()
        self.qkv = nn.Linear(width, 3 * width)
        self.projection = nn.Linear(width, width)
        self.norm2 = config.norm()
        # The modules of a feed-forward part, or those of a mixture, are the block's own: so their names say.
        self.inner = [Experts(config) if config.experts else FeedForward(config)]
        for name, module in self.inner[0].named_children():
            self.add_module(name, module)

    def forward(self, x):
        rows, tokens, width = x.shape
        split = self.qkv(self.norm1(x)).view(rows, tokens, 3, self.heads, width // self.heads)
        q, k, v = split.permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.projection(attended.transpose(1, 2).reshape(rows, tokens, width))
        return x + self.inner[0](self.norm2(x))

    def auxiliary(self):
        return getattr(self.inner[0], "auxiliary", 0.0)


class LlamaBlock(nn.Module):
    def __init__(self, config):
        super().__init__()
        width, self.size = config.width, config.width // config.heads
        self.base = config.rope_base
        self.norm1 = config.norm()
        self.q = nn.Linear(width, width, bias=False)
        self.k = nn.Linear(width, config.kv_heads * self.size, bias=False)
        self.v = nn.Linear(width, config.kv_heads * self.size, bias=False)
        self.projection = nn.Linear(width, width, bias=False)
        self.norm2 = config.norm()
        self.gate = nn.Linear(width, config.hidden, bias=False)
        self.up = nn.Linear(width, config.hidden, bias=False)
        self.down = nn.Linear(config.hidden, width, bias=False)

    def forward(self, x):
        h = self.norm1(x)
        q, k, v = (self.split(linear(h)) for linear in (self.q, self.k, self.v))
        q, k = self.turn(q), self.turn(k)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.projection(attended.transpose(1, 2).flatten(2))
        h = self.norm2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))

    def split(self, x):
        rows, tokens, _ = x.shape
        return x.view(rows, tokens, -1, self.size).transpose(1, 2)

    def turn(self, x):
        """Rotary positions: numbers i and i + size/2 of a head are a complex number, which is turned."""
        narrow = x.dtype
        x = x.to(torch.promote_types(narrow, torch.float32))
        left, right = x.chunk(2, dim=-1)
        planes = torch.arange(self.size // 2, dtype=torch.float64)
        positions = torch.arange(x.shape[-2], dtype=torch.float64)
        angles = positions[:, None] * self.base ** (-2 * planes / self.size)
        turned = torch.complex(left, right) * torch.polar(torch.ones_like(angles), angles).to(
            torch.complex128 if x.dtype == torch.float64 else torch.complex64
        )
        return torch.cat((turned.real, turned.imag), dim=-1).to(narrow)


class Embed(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.token = nn.Embedding(config.vocab, config.width)
        if config.architecture == "gpt":
            self.position = nn.Embedding(config.context, config.width)

    def forward(self, tokens):
        x = self.token(tokens)
        return x + self.position(torch.arange(tokens.shape[1])) if hasattr(self, "position") else x


class Head(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.norm = config.norm()
        self.matrix = nn.Linear(config.width, config.vocab, bias=False)

    def forward(self, x):
        return self.matrix(self.norm(x))


class Model(nn.Module):
    """Parameters are registered in the order in which they lie in the trainer's flat buffer."""

    def __init__(self, config):
        super().__init__()
        block = {"gpt": GptBlock, "llama": LlamaBlock}[config.architecture]
        self.config = config
        self.embed = Embed(config)
        self.block = nn.Sequential(*(block(config) for _ in range(config.layers)))
        self.head = Head(config)

    def forward(self, tokens):
        return self.head(self.block(self.embed(tokens)))

    @torch.no_grad()
    def greedy(self, prompt, count):
        """The `count` likeliest tokens after `prompt`, each by the last row's worth of those before."""
        tokens = list(prompt)
        for _ in range(count):
            seen = torch.tensor([tokens[-self.config.context :]])
            tokens.append(int(self(seen)[0, -1].argmax()))
        return tokens[len(prompt) :]


class Vocabulary:
    """Bytes, and one token for each merge."""

    def __init__(self, merges):
        self.merges = [tuple(merge) for merge in merges]
        self.texts = [bytes([byte]) for byte in range(256)]
        for left, right in self.merges:
            self.texts.append(self.texts[left] + self.texts[right])

    def encode(self, text):
        """Merges in the order in which they were learnt, each from the left."""
        tokens = list(text)
        for token, pair in enumerate(self.merges, 256):
            merged = []
            for one in tokens:
                # A token that was just merged is greater than all of its pair, so it merges no further.
                if merged and (merged[-1], one) == pair:
                    merged[-1] = token
                else:
                    merged.append(one)
            tokens = merged
        return tokens

    def decode(self, tokens):
        return b"".join(self.texts[token] for token in tokens)


def module_name(name):
    """The name of a parameter here, from that in the file."""
    return "head.matrix.weight" if name == "head.weight" else name


def load(path):
    """The model and the vocabulary of a file that `train export` wrote."""
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        config = Config.told(file.metadata())
        told = json.loads(file.metadata()["config"])
        tensors = {module_name(name): file.get_tensor(name) for name in file.keys()}
    if "merges" not in told:
        raise ValueError(f"{path}: it does not say what its tokens stand for")
    model = Model(config)
    model.load_state_dict(tensors)
    return model, Vocabulary(told["merges"])
