# ruff: noqa: INP001, T201 (a program)
"""Train a network on clicks with several processes, and go on when one of them dies.

torchrun --standalone --nproc_per_node=2 --max-restarts=3 train_distributed.py run
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

from countersample import ClickLog, evaluate, load_letor, simulate_clicks, synthetic
from countersample.torch import ClickDataset, CounterSampler, click_loss, collate

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from countersample import RankingDataset


class Training:
    """A network, its optimizer and its sampler, and the file that holds the state of all three."""

    def __init__(
        self,
        dataset: RankingDataset,
        log: ClickLog,
        checkpoint: Path,
        *,
        batch_size: int,
        learning_rate: float,
        seed: int,
    ) -> None:
        torch.manual_seed(seed)
        hidden, scores = nn.Linear(dataset.n_features, 32), nn.Linear(32, 1, bias=False)
        self.net = nn.Sequential(hidden, nn.ReLU(), scores)
        self.optimizer = torch.optim.Adam(self.net.parameters(), learning_rate)
        self.sampler = CounterSampler(log, batch_size=batch_size, seed=seed)
        self.loader = DataLoader(
            ClickDataset(dataset, log, plan=self.sampler.plan),
            batch_sampler=self.sampler,
            collate_fn=collate,
        )
        self.checkpoint = checkpoint

    def run(self, *, epochs: int, save_every: int) -> None:
        """Go on from the checkpoint, if there is one, to the end of the last epoch."""
        self.load()
        net = DistributedDataParallel(self.net) if distributed.is_initialized() else self.net
        for epoch in range(self.sampler.epoch, epochs):
            for step, batch in enumerate(self.loader, 1):
                loss = click_loss(net(batch.features).squeeze(-1), batch)
                self.optimizer.zero_grad()
                loss.backward()  # the mean of all ranks
                self.optimizer.step()
                if step % save_every == 0:
                    self.save()
            self.save()
            if self.sampler.rank == 0:
                print(f"epoch {epoch + 1} of {epochs}", flush=True)

    def save(self) -> None:
        """Write the checkpoint, on one rank: the state is the same on all of them."""
        if self.sampler.rank != 0:
            return
        state = {
            "net": self.net.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "sampler": self.sampler.state_dict(),
        }
        temporary = self.checkpoint.with_suffix(".tmp")
        torch.save(state, temporary)
        temporary.replace(self.checkpoint)  # at once, so that no half of a file is ever read

    def load(self) -> None:
        """Read the checkpoint, on every rank: none writes before all have taken a step."""
        if not self.checkpoint.exists():
            return
        state = torch.load(self.checkpoint, weights_only=True)
        self.net.load_state_dict(state["net"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.sampler.load_state_dict(state["sampler"])

    def predict(self, features: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the score of each row."""
        with torch.no_grad():
            scores: NDArray[np.float32] = self.net(torch.tensor(features)).squeeze(-1).numpy()
        return scores


def read(data: Path | None, clicks: Path | None, seed: int) -> tuple[RankingDataset, ClickLog]:
    """Return labelled data and a log of clicks on it; both are made up where no files are given."""
    if data is not None and clicks is not None:
        dataset = load_letor(data)
        return dataset, ClickLog.load(clicks, dataset)
    dataset = synthetic("tiny", n_queries=300, rng=seed)
    return dataset, simulate_clicks(dataset, dataset.features[:, 0], 20_000, rng=seed)


def main() -> None:
    """Read the arguments, and train."""
    parser = argparse.ArgumentParser(description="Train a network on clicks, with torchrun.")
    parser.add_argument("folder", type=Path, help="of the checkpoint")
    parser.add_argument("--data", type=Path, help="labelled data as LETOR text")
    parser.add_argument("--clicks", type=Path, help="a click log on it, as Parquet")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=16, help="of each process")
    parser.add_argument("--learning-rate", type=float, default=0.003)
    parser.add_argument("--save-every", type=int, default=100, help="steps between checkpoints")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if (options.data is None) != (options.clicks is None):
        parser.error("--data and --clicks go together")

    if distributed.is_torchelastic_launched():
        distributed.init_process_group("gloo")
    dataset, log = read(options.data, options.clicks, options.seed)
    options.folder.mkdir(parents=True, exist_ok=True)
    training = Training(
        dataset,
        log,
        options.folder / "checkpoint.pt",
        batch_size=options.batch_size,
        learning_rate=options.learning_rate,
        seed=options.seed,
    )
    training.run(epochs=options.epochs, save_every=options.save_every)
    if training.sampler.rank == 0:
        ndcg = evaluate(training, dataset, "ndcg@10")["ndcg@10"]
        print(f"nDCG@10 {ndcg:.4f}; the network is in {training.checkpoint}")
    if distributed.is_initialized():
        distributed.destroy_process_group()


if __name__ == "__main__":
    main()
