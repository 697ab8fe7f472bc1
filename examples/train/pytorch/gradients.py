"""Compares the loss and every gradient of one batch in float64 with those of PyTorch's autograd.

    cargo test -p maypole-train --test pytorch

writes the files that this script reads: the weights of a model by their names, `tokens` and `targets`, what the trainer
makes of them (`loss`, and `gradient.NAME` of each weight), and the metadata of `train export`. Ends with status 1 if a
gradient differs by more than --tolerance, as a part of the largest of its tensor, or the loss. Needs PyTorch and the
package safetensors.
"""

import argparse
import math
import sys

import torch
from safetensors import safe_open
from torch.nn import functional as F

from model import Config, Model, module_name


def difference(path):
    """The greatest difference of the loss and of the gradients in a file, and a line about it."""
    with safe_open(path, framework="pt") as file:
        config = Config.told(file.metadata())
        tensors = {name: file.get_tensor(name) for name in file.keys()}
    special = ("tokens", "targets", "loss")
    weights = [name for name in tensors if name not in special and not name.startswith("gradient.")]
    model = Model(config)
    model.load_state_dict({module_name(name): tensors[name] for name in weights})
    logits = model(tensors["tokens"])
    loss = F.cross_entropy(logits.flatten(0, 1), tensors["targets"].flatten())
    loss.backward()

    parts = [abs(loss.item() / tensors["loss"].item() - 1)]
    parameters = dict(model.named_parameters())
    for name in weights:
        theirs = parameters[module_name(name)].grad
        parts.append(((tensors[f"gradient.{name}"] - theirs).abs().max() / theirs.abs().max()).item())
    most = math.inf if any(math.isnan(part) for part in parts) else max(parts)
    what = f"{config.architecture} with {config.kv_heads} of {config.heads} heads of keys"
    return most, f"{what}: the loss and {len(weights)} gradients differ by at most {most:.1e} of their size"


def main():
    about, how = __doc__.split("\n\n", 1)
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=about, epilog=how, formatter_class=formatter)
    parser.add_argument("files", nargs="+")
    parser.add_argument("--tolerance", type=float, default=1e-9)
    args = parser.parse_args()
    torch.set_default_dtype(torch.float64)
    worst = 0.0
    for path in args.files:
        most, line = difference(path)
        worst = max(worst, most)
        print(line)
    sys.exit(not worst <= args.tolerance)


if __name__ == "__main__":
    main()
