"""Trains the trainer's model once more, in PyTorch, and compares the loss of every step.

    cargo build --release -p maypole-train
    python examples/train/pytorch/compare.py
    python examples/train/pytorch/compare.py --model llama --kv-heads 2
    python examples/train/pytorch/compare.py --optimizer sgd --rate 0.1 --mesh dp=2,tp=2
    python examples/train/pytorch/compare.py --experts 4 --micros 4 --mesh ep=2
    python examples/train/pytorch/compare.py --precision bf16 --overflow 10

Needs PyTorch and NumPy. Nothing is taken from `train` but the losses that it writes: the model
is made of `torch.nn` (`model.py`), its gradients are those of autograd, the optimizer is that of `torch.optim`. What
both start from, weights and rows, are functions of a seed and of a number (`src/tensor/random.rs`), which are written
here a second time. So if the two agree, the layers, their derivatives, the clipping, the optimizer and the schedule are
what PyTorch means by these words; and with --mesh, the collectives too. With --double PyTorch computes in float64: what
differs then are the roundings of `train` alone. With --precision bf16 PyTorch computes by `torch.autocast` and updates
parameters in float32; with --micros it adds the gradients of micro-batches; with --overflow it leaves the update out
where a gradient is not finite, as `torch.amp.GradScaler` does.

Ends with status 1 if a loss differs by more than --tolerance, as a part of the loss, or the norm of the first
gradient: AdamW takes the same steps when all gradients are too large by a factor, so losses alone would not show
that. In 100 steps of the default options the losses differ by 5e-7. A run that is unstable amplifies any rounding
(SGD at 0.1 with --clip 1000 jumps at step 37, where PyTorch in float32 is as far from PyTorch in float64): a smaller
rate tells whether it is that.
"""

import argparse
import json
import math
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from model import Config, Model

CRATE = Path(__file__).resolve().parents[1]
SEED, LAYERS, HEADS, CONTEXT, ROWS, VOCAB = 1, 4, 4, 64, 16, 256


def mix(word):
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return word ^ (word >> np.uint64(31))


def random(stream, first, count):
    """Numbers `first` to `first + count` of a stream: 64 bits each."""
    index = np.arange(first, first + count, dtype=np.uint64)
    start = mix(np.full(1, stream, np.uint64) + np.uint64(0x9E3779B97F4A7C15))
    return mix(start ^ (index * np.uint64(0xD12942F1F293E1D3)))


# Each use of the seed has a stream of its own.
WEIGHTS, PLACES = (random(SEED, use, 1)[0] for use in (1, 2))


def centred(first, count):
    """Numbers of the stream of weights, with mean 0 and standard deviation 1."""
    uniform = (random(WEIGHTS, first, count) >> np.uint64(11)).astype(np.float64) / 2.0**53
    return (uniform - 0.5) * math.sqrt(12.0)


@torch.no_grad()
def start(model):
    """Weight i of the model is number i of the stream, times the deviation of its tensor."""
    first = 0
    for name, p in model.named_parameters():
        if name.endswith("bias"):
            p.zero_()
        elif p.dim() == 2:
            weights = deviation(name, p.shape[1], model.config.layers) * centred(first, p.numel())
            p.copy_(torch.from_numpy(weights.astype(np.float32)).view_as(p))
        first += p.numel()


def deviation(name, inputs, layers):
    if name.startswith("embed."):
        return 0.02
    residual = name.endswith(("projection.weight", "down.weight"))
    return 0.5 / math.sqrt(inputs * (2 * layers if residual else 1))


def sizes(args):
    """The model of `train run` with these options."""
    llama = args.model == "llama"
    hidden = 4 * args.width
    if llama:
        hidden = math.ceil(math.ceil(8 * args.width / 3) / HEADS) * HEADS
    kv_heads = args.kv_heads if llama else HEADS
    return Config(args.model, VOCAB, CONTEXT, args.width, HEADS, kv_heads, LAYERS, hidden, experts=args.experts)


def batches(steps):
    """Tokens and targets of each step, from the nine tenths of the text that are trained on."""
    text = b"".join((CRATE.parent / "trainer/text" / play).read_bytes() for play in ("hamlet.txt", "richard-iii.txt"))
    tokens = torch.tensor(list(text[: len(text) - len(text) // 10]))
    places = np.uint64(len(tokens) - CONTEXT)
    for step in range(steps):
        starts = random(PLACES, step * ROWS, ROWS) % places
        rows = torch.stack([tokens[start : start + CONTEXT + 1] for start in starts.astype(int)])
        yield rows[:, :-1], rows[:, 1:]


def rate(step, args):
    """Up in a line for a tenth of the steps, then down half a cosine to a tenth of the peak."""
    warm_up = args.steps // 10
    if step < warm_up:
        return args.rate * (step + 1) / warm_up
    done = (step - warm_up) / (args.steps - warm_up)
    floor = args.rate / 10
    return floor + (args.rate - floor) * (1 + math.cos(math.pi * done)) / 2


def pytorch(args):
    """The loss before each step, and the norm of its gradient."""
    torch.set_default_dtype(torch.float64 if args.double else torch.float32)
    model = Model(sizes(args))
    start(model)
    optimizer = {
        "adamw": lambda p: torch.optim.AdamW(p, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1),
        "sgd": torch.optim.SGD,
    }[args.optimizer](model.parameters())
    for step, (tokens, targets) in enumerate(batches(args.steps)):
        optimizer.param_groups[0]["lr"] = rate(step, args)
        optimizer.zero_grad()
        loss = 0.0
        for part in zip(tokens.chunk(args.micros), targets.chunk(args.micros), strict=True):
            share = loss_of(model, *part, args) / args.micros
            share.backward()
            loss += share.item()
        if step + 1 == args.overflow:
            model.head.matrix.weight.grad[-1, -1] = math.inf
        norm = nn.utils.clip_grad_norm_(model.parameters(), args.clip).item()
        if math.isfinite(norm):
            optimizer.step()
        yield loss, norm


def loss_of(model, tokens, targets, args):
    """The mean loss of a micro-batch, with the auxiliary losses of experts."""
    with torch.autocast("cpu", torch.bfloat16, enabled=args.precision == "bf16"):
        logits = model(tokens)
    loss = F.cross_entropy(logits.flatten(0, 1).to(torch.get_default_dtype()), targets.flatten())
    return loss + sum(block.auxiliary() for block in model.block) if args.experts else loss


def maypole(args):
    """The same of `train run`."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "losses.jsonl"
        options = ["--sample", 0, "--losses", file]
        if args.model == "llama":
            options += ["--kv-heads", args.kv_heads]
        for name in ("experts", "overflow"):
            options += [f"--{name}", getattr(args, name)] if getattr(args, name) else []
        for name in ("model", "mesh", "width", "steps", "optimizer", "rate", "clip", "precision", "micros"):
            options += [f"--{name}", getattr(args, name)]
        done = subprocess.run([args.train, "run", *map(str, options)], stdout=subprocess.DEVNULL)
        if done.returncode != 0:
            sys.exit(f"{args.train} ended with status {done.returncode}")
        lines = [json.loads(line) for line in file.read_text().splitlines()]
    return [(line["loss"], line["norm"]) for line in lines]


def difference(ours, theirs):
    """As a part of the number; what only one of them finds to be no number is as far away as can be."""
    if ours is None and not math.isfinite(theirs):
        return 0.0
    if ours is None:
        return math.inf
    part = abs(ours - theirs) / theirs
    return part if math.isfinite(part) else math.inf


def main():
    about, how = __doc__.split("\n\n", 1)
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=about, epilog=how, formatter_class=formatter)
    parser.add_argument("--train", default=CRATE.parents[1] / "target/release/train", help="the program")
    parser.add_argument("--mesh", default="", help="ranks of train along each axis, as dp=2,tp=2")
    parser.add_argument("--model", choices=("gpt", "llama"), default="gpt")
    parser.add_argument("--kv-heads", type=int, default=2, help="heads of keys of a llama")
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--optimizer", choices=("adamw", "sgd"), default="adamw")
    parser.add_argument("--rate", type=float, default=3e-3)
    parser.add_argument("--clip", type=float, default=1.0, help="the most that the gradient's norm may be, above 0")
    parser.add_argument("--experts", type=int, default=0, help="of each block of a gpt")
    parser.add_argument("--micros", type=int, default=1, help="micro-batches of a step")
    parser.add_argument("--precision", choices=("f32", "bf16"), default="f32")
    parser.add_argument("--overflow", type=int, default=0, help="a step in which a gradient is infinite")
    parser.add_argument("--double", action="store_true", help="PyTorch in float64")
    parser.add_argument("--tolerance", type=float, help="by default 1e-5, or 3e-3 in bf16")
    args = parser.parse_args()
    if args.tolerance is None:
        args.tolerance = 3e-3 if args.precision == "bf16" else 1e-5
    if not Path(args.train).exists():
        parser.error(f"there is no {args.train}: cargo build --release -p maypole-train makes it")

    ours, most = maypole(args), 0.0
    print(f"{'step':>5} {'maypole':>12} {'PyTorch':>12} {'difference':>11} {'of the norm':>12}")
    for step, ((loss, norm), (their_loss, their_norm)) in enumerate(zip(ours, pytorch(args), strict=True), 1):
        here, of_norm = difference(loss, their_loss), difference(norm, their_norm)
        skips = norm is None or not math.isfinite(their_norm)
        most = max(most, here, of_norm if step == 1 or skips else 0.0)
        if step <= 5 or step % max(args.steps // 20, 1) == 0:
            shown = math.nan if loss is None else loss
            print(f"{step:5} {shown:12.7f} {their_loss:12.7f} {here:11.1e} {of_norm:12.1e}")
    print(f"{args.steps} losses and the first norm differ by at most {most:.1e}; {args.tolerance:.0e} is allowed")
    sys.exit(not most <= args.tolerance)


if __name__ == "__main__":
    main()
