# ruff: noqa: INP001, T201 (a program)
"""Train a ranker on shards that Spark wrote, by several processes, each with its own files.

torchrun --standalone --nproc_per_node=2 train_from_shards.py shards -o ranker.json
"""

from __future__ import annotations

import argparse
from pathlib import Path

from torch import distributed

from countersample.torch import NeuralRanker, train_on_shards


def main() -> None:
    """Read the arguments, train, and write the ranker from one process."""
    parser = argparse.ArgumentParser(description="Train a ranker on shards, with torchrun.")
    parser.add_argument("shards", help="what write_training_shards wrote")
    parser.add_argument("-o", "--out", type=Path, required=True, help="the ranker, as JSON")
    parser.add_argument("--hidden", type=int, nargs="*", default=[64, 32], help="none: linear")
    parser.add_argument("--epochs", type=int, default=50)
    parser.add_argument("--batch-size", type=int, default=64, help="of all processes together")
    parser.add_argument("--learning-rate", type=float, default=0.001)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if distributed.is_torchelastic_launched():
        distributed.init_process_group("gloo")
    is_first = not distributed.is_initialized() or distributed.get_rank() == 0
    settings = NeuralRanker(
        hidden=options.hidden,
        epochs=options.epochs,
        batch_size=options.batch_size,
        learning_rate=options.learning_rate,
        random_state=options.seed,
    )
    ranker = train_on_shards(
        settings,
        options.shards,
        progress=lambda what, _share: print(what, flush=True) if is_first else None,
    )
    if is_first:
        ranker.save(options.out)
        print(f"The ranker is in {options.out}")
    if distributed.is_initialized():
        distributed.destroy_process_group()


if __name__ == "__main__":
    main()
