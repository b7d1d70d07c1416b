#!/usr/bin/env python3
"""Writes models/*.pt beside this file: small TorchScript models of many kinds, in float64.

Run it in its own folder: python3 make_models.py. Needs PyTorch's Python package (the files were made with
Debian's python3-torch, 1.13); tests read the files alone.
"""

import threading
from pathlib import Path
from typing import Tuple

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor

FOLDER = Path(__file__).parent / "models"


def rows(*shape):
    return torch.randn(*shape, dtype=torch.float64)


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(6, 8), nn.Linear(8, 8)
        self.fc3, self.fc4 = nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x):
        x = torch.tanh(self.fc1(x))
        x = F.gelu(self.fc2(x))
        x = F.relu(self.fc3(x), inplace=True)
        return self.fc4(x)


class Cnn(nn.Module):
    def __init__(self, norm: bool):
        super().__init__()
        make = nn.BatchNorm2d if norm else lambda n: nn.GroupNorm(2, n)
        self.features = nn.Sequential(
            nn.Conv2d(2, 4, 3, padding=1), make(4), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(4, 6, 3, padding=1), make(6), nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d(1))
        self.head = nn.Linear(6, 3)

    def forward(self, x):
        return self.head(torch.flatten(self.features(x), 1))


class Residual(nn.Module):
    def __init__(self, channels: int):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1)
        self.norm = nn.GroupNorm(2, channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x):
        return F.relu(x + self.conv2(F.relu(self.norm(self.conv1(x)))))


class ResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(2, 4, 3, padding=1)
        self.blocks = nn.Sequential(Residual(4), Residual(4), Residual(4))
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        x = self.blocks(F.relu(self.stem(x)))
        return self.head(x.mean([2, 3]))


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down1 = nn.Conv2d(1, 4, 3, padding=1)
        self.down2 = nn.Conv2d(4, 6, 3, padding=1)
        self.bottom = nn.Conv2d(6, 6, 3, padding=1)
        self.up2 = nn.ConvTranspose2d(6, 6, 2, stride=2)
        self.merge2 = nn.Conv2d(12, 4, 3, padding=1)
        self.up1 = nn.ConvTranspose2d(4, 4, 2, stride=2)
        self.merge1 = nn.Conv2d(8, 1, 3, padding=1)

    def forward(self, x):
        a = F.relu(self.down1(x))
        b = F.relu(self.down2(F.max_pool2d(a, 2)))
        c = F.relu(self.bottom(F.max_pool2d(b, 2)))
        d = F.relu(self.merge2(torch.cat([self.up2(c), b], 1)))
        return self.merge1(torch.cat([self.up1(d), a], 1))


class Attention(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x, mask):
        b, t, c = x.shape
        qkv = self.qkv(x).view(b, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        q, k, v = qkv[0], qkv[1], qkv[2]
        scores = torch.matmul(q, k.transpose(-2, -1)) / (c // self.heads) ** 0.5
        scores = scores.masked_fill(mask[:t, :t] == 0, float("-inf"))
        mixed = torch.matmul(F.softmax(scores, dim=-1), v)
        return self.out(mixed.transpose(1, 2).reshape(b, t, c))


class Block(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x, mask):
        x = x + self.attention(self.norm1(x), mask)
        return x + self.mlp(self.norm2(x))


class Transformer(nn.Module):
    """A small GPT; the head's weight is the embedding's where tied."""

    def __init__(self, tied: bool):
        super().__init__()
        self.embed, self.position = nn.Embedding(11, 8), nn.Embedding(6, 8)
        self.blocks = nn.ModuleList([Block(8, 2), Block(8, 2)])
        self.norm = nn.LayerNorm(8)
        self.head = nn.Linear(8, 11, bias=False)
        if tied:
            self.head.weight = self.embed.weight
        self.register_buffer("mask", torch.tril(torch.ones(6, 6)))

    def forward(self, tokens):
        x = self.embed(tokens) + self.position(torch.arange(tokens.size(1)))
        for block in self.blocks:
            x = block(x, self.mask)
        return self.head(self.norm(x))


class SequenceFirst(nn.Module):
    """PyTorch's own attention, with the batch in dimension 1 and heads folded into it."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(6, 8)
        self.attention = nn.MultiheadAttention(8, 2)
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        x = self.inner(x).transpose(0, 1)
        x = x + self.attention(x, x, x, need_weights=False)[0]
        return self.head(x.mean(0))


class Lstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(11, 6)
        self.lstm = nn.LSTM(6, 5, num_layers=2, batch_first=True)
        self.head = nn.Linear(5, 3)

    def forward(self, tokens):
        states, _ = self.lstm(self.embed(tokens))
        return self.head(states[:, -1])


class EncoderDecoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.source, self.target = nn.Embedding(11, 6), nn.Embedding(11, 6)
        self.encoder = nn.GRU(6, 6, batch_first=True)
        self.decoder = nn.GRU(6, 6, batch_first=True)
        self.query, self.head = nn.Linear(6, 6), nn.Linear(12, 11)

    def forward(self, source, target):
        memory, state = self.encoder(self.source(source))
        states, _ = self.decoder(self.target(target), state)
        weights = F.softmax(torch.bmm(self.query(states), memory.transpose(1, 2)), -1)
        return self.head(torch.cat([states, torch.bmm(weights, memory)], -1))


class TwoTowers(nn.Module):
    """Every sample's item is a negative of all other samples."""

    def __init__(self):
        super().__init__()
        self.user = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4))
        self.item = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 4))

    def forward(self, user, item):
        scores = torch.matmul(self.user(user), self.item(item).t())
        return F.cross_entropy(scores, torch.arange(scores.size(0)))


class TwoTowersPairs(TwoTowers):
    """Every sample alone: a click or none."""

    def forward(self, user, item, clicked):
        scores = (self.user(user) * self.item(item)).sum(1)
        return F.binary_cross_entropy_with_logits(scores, clicked)


class DeepFm(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Embedding(20, 1), nn.Embedding(20, 4)
        self.dense = nn.Linear(3, 1)
        self.deep = nn.Sequential(nn.Linear(4 * 4 + 3, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))

    def forward(self, fields, numbers):
        linear = self.first(fields).sum(1) + self.dense(numbers)
        factors = self.second(fields)
        crossed = 0.5 * (factors.sum(1).pow(2) - factors.pow(2).sum(1)).sum(1, keepdim=True)
        deep = self.deep(torch.cat([factors.flatten(1), numbers], 1))
        return torch.sigmoid(linear + crossed + deep)


class MultiInput(nn.Module):
    """Three inputs of the batch, one of them used at the very end."""

    def __init__(self):
        super().__init__()
        self.left, self.right = nn.Linear(4, 6), nn.Linear(3, 6)
        self.middle, self.head = nn.Linear(12, 6), nn.Linear(8, 2)

    def forward(self, left, right, late):
        x = torch.cat([torch.tanh(self.left(left)), torch.tanh(self.right(right))], 1)
        return self.head(torch.cat([F.silu(self.middle(x)), late], 1))


class MultiOutput(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh())
        self.early, self.late = nn.Linear(8, 2), nn.Linear(8, 3)

    def forward(self, x) -> Tuple[Tensor, Tensor]:
        x = self.trunk(x)
        early = self.early(x)
        return early, self.late(torch.cat([x[:, 2:], early], 1))


class ControlFlow(nn.Module):
    """Loops and branches that look at shapes and modes, not at the batch's values."""

    def __init__(self):
        super().__init__()
        self.enter, self.cell, self.leave = nn.Linear(4, 6), nn.Linear(6, 6), nn.Linear(6, 2)
        self.depth = 3

    def forward(self, x):
        x = self.enter(x)
        for step in range(self.depth):
            if step % 2 == 0:
                x = torch.tanh(self.cell(x))
            else:
                x = x + self.cell(x)
        if x.size(1) > 4:
            x = x * 0.5
        return self.leave(x)


class DataBranch(nn.Module):
    """What it does to a sample depends on the others."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 2)

    def forward(self, x):
        if bool(x.sum() > 0):
            x = x * 2.0
        return self.fc(x)


class BatchSoftmax(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x):
        return self.fc2(F.softmax(self.fc1(x), dim=0))


class WithLoss(nn.Module):
    """A training loss in the graph: a mean over the batch, and what does not depend on the batch."""

    def __init__(self):
        super().__init__()
        self.body = Mlp()

    def forward(self, x, target):
        loss = F.cross_entropy(self.body(x), target)
        return loss + 0.01 * self.body.fc2.weight.pow(2).sum()


class MaskedLoss(nn.Module):
    """A mean over what the mask leaves: micro-batches count by their part of it."""

    def __init__(self):
        super().__init__()
        self.body = Mlp()

    def forward(self, x, target, mask):
        errors = (self.body(x) - target).pow(2).mean(1) * mask
        return errors.sum() / mask.sum()


class SummedLoss(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = Mlp()

    def forward(self, x, target):
        return 0.5 * (self.body(x) - target).pow(2).sum()


def tokens(*shape):
    return torch.randint(0, 11, shape)


def save(name, make, *example, trace=False):
    """Scripted, or traced on the example. In training mode, as it will be used."""
    torch.manual_seed(1)
    model = make().double().train()
    made = torch.jit.trace(model, example, check_trace=False) if trace else torch.jit.script(model)
    made.save(str(FOLDER / f"{name}.pt"))


def main():
    FOLDER.mkdir(exist_ok=True)
    save("mlp", Mlp)
    save("mlp_traced", Mlp, rows(4, 6), trace=True)
    save("cnn", lambda: Cnn(norm=False))
    save("cnn_norm", lambda: Cnn(norm=True))
    save("cnn_norm_traced", lambda: Cnn(norm=True), rows(4, 2, 6, 6), trace=True)
    save("resnet", ResNet)
    save("unet", UNet, rows(4, 1, 8, 8), trace=True)
    save("transformer", lambda: Transformer(tied=False), tokens(4, 6), trace=True)
    save("tied", lambda: Transformer(tied=True))
    save("sequence_first", SequenceFirst, rows(4, 5, 6), trace=True)
    save("lstm", Lstm)
    save("encoder_decoder", EncoderDecoder, tokens(4, 5), tokens(4, 4), trace=True)
    save("two_towers", TwoTowers)
    save("two_towers_pairs", TwoTowersPairs)
    save("deepfm", DeepFm)
    save("multi_input", MultiInput)
    save("multi_output", MultiOutput)
    save("control_flow", ControlFlow)
    save("data_branch", DataBranch)
    save("batch_softmax", BatchSoftmax)
    save("with_loss", WithLoss)
    save("masked_loss", MaskedLoss)
    save("summed_loss", SummedLoss)
    torch.save(Mlp().state_dict(), FOLDER / "state_dict.pt")  # not TorchScript: to be refused


def forget_path():
    """The files keep the lines of this source; of its path they shall keep the name alone."""
    found = list(globals().values())
    found += [item for kind in found if isinstance(kind, type) for item in vars(kind).values()]
    for function in found:
        if getattr(function, "__module__", "") == __name__ and hasattr(function, "__code__"):
            function.__code__ = function.__code__.replace(co_filename=Path(__file__).name)


if __name__ == "__main__":
    forget_path()
    threading.Thread(target=main).start()  # whose calls do not begin in this file's path
