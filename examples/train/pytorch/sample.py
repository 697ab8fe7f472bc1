"""Writes text with a model that `train export` wrote, the likeliest token each time.

    train run --bpe 400 --save DIR --temperature 0 --sample 100      # ends with the same text
    train export DIR model.safetensors
    python examples/train/pytorch/sample.py model.safetensors --tokens 100

Needs PyTorch, NumPy and the package safetensors.
"""

import argparse
import sys

from model import load


def main():
    about, how = __doc__.split("\n\n", 1)
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=about, epilog=how, formatter_class=formatter)
    parser.add_argument("file", help="what `train export` wrote")
    parser.add_argument("--prompt", default="KING.\n")
    parser.add_argument("--tokens", type=int, default=300)
    args = parser.parse_args()
    model, vocabulary = load(args.file)
    prompt = vocabulary.encode(args.prompt.encode())
    text = vocabulary.decode(prompt + model.greedy(prompt, args.tokens))
    sys.stdout.buffer.write(text + b"\n")


if __name__ == "__main__":
    main()
