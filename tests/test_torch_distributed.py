"""Two processes under torchrun: the gradient of one, and training that outlives a worker.

The processes run this file as a program; what they do is at the end of it.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import SEED
from shops import load_example
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

from countersample import simulate_clicks, synthetic
from countersample.torch import ClickDataset, CounterSampler, click_loss

BATCH = 16
N_BATCHES = 4
EPOCHS, SAVE_EVERY, LAST_STEP = 3, 4, 17


def torchrun(*arguments, restarts=0):
    """Run this file in two processes that talk through the loopback interface."""
    environment = os.environ | {
        "COUNTERSAMPLE_TEST_SEED": str(SEED),
        "GLOO_SOCKET_IFNAME": "lo" if sys.platform == "linux" else "lo0",
        "OMP_NUM_THREADS": "1",
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",  # see docs/torch.md
    }
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node=2", f"--max-restarts={restarts}"]
    meeting = ["--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:0", "--local-addr=127.0.0.1"]
    done = subprocess.run(
        [sys.executable, *launcher, *meeting, __file__, *map(str, arguments)],
        env=environment, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


# -- the gradient --------------------------------------------------------------------------------


class Problem:
    """A small network, in float64, and clicks to train it on; the same in every process."""

    def __init__(self):
        data = synthetic("tiny", n_queries=30, rng=SEED)
        self.data, self.log = data, simulate_clicks(data, data.features[:, 0], 500, rng=SEED)
        torch.manual_seed(SEED)
        layers = nn.Linear(data.n_features, 4), nn.Tanh(), nn.Linear(4, 1)
        self.net = nn.Sequential(*layers).double()

    def examples(self):
        return ClickDataset(self.data, self.log)

    def gradient(self, batch, net=None):
        """The gradient of the loss of a batch, by backpropagation; a vector."""
        self.net.zero_grad()
        scores = (net or self.net)(batch.features.double()).squeeze(-1)
        click_loss(scores, batch).backward()
        return torch.cat([parameter.grad.ravel() for parameter in self.net.parameters()]).numpy()


@pytest.fixture(scope="module")
def problem():
    return Problem()


@pytest.fixture(scope="module")
def of_two(tmp_path_factory):
    """Return the results of two processes: indices of each, and the gradients they share."""
    folder = tmp_path_factory.mktemp("gradients")
    torchrun("gradients", folder)
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(2)]


def test_two_processes_have_the_gradient_of_one_with_all_of_their_examples(problem, of_two):
    examples = problem.examples()
    sampler = CounterSampler(problem.log, batch_size=2 * BATCH, n_draws=10**6, seed=SEED)
    for step, together in zip(range(N_BATCHES), sampler, strict=False):
        parts = [result["indices"][step] for result in of_two]
        assert np.array(parts).T.ravel().tolist() == together
        expected = problem.gradient(examples.__getitems__(together))
        for result in of_two:
            np.testing.assert_allclose(result["gradients"][step], expected, rtol=1e-9, atol=1e-12)


def find_gradients(folder):
    """In each process: some batches of its own."""
    problem = Problem()
    net, examples = DistributedDataParallel(problem.net), problem.examples()
    sampler = CounterSampler(problem.log, batch_size=BATCH, n_draws=10**6, seed=SEED)
    indices = [batch for _, batch in zip(range(N_BATCHES), sampler, strict=False)]
    gradients = [problem.gradient(examples.__getitems__(batch), net) for batch in indices]
    result = {
        "indices": indices,
        "gradients": [torch.from_numpy(gradient) for gradient in gradients],
    }
    torch.save(result, folder / f"{sampler.rank}.pt")


# -- the example ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    printed = torchrun("train", folder).splitlines()
    assert printed[:-1] == [f"epoch {epoch} of {EPOCHS}" for epoch in range(1, EPOCHS + 1)]
    assert printed[-1].startswith("nDCG@10 0.")
    return folder


@pytest.fixture(scope="module")
def disturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("disturbed")
    torchrun("die", folder, restarts=1)
    return folder


def checkpoint(folder, name="checkpoint.pt"):
    return torch.load(folder / name, weights_only=True)


def test_training_goes_on_when_a_worker_is_killed(undisturbed, disturbed):
    """One worker is killed in the 7th step of an epoch, the checkpoint is of the 4th.

    What is left at the end is the same to the bit: weights, optimizer, sampler.
    """
    assert (undisturbed / "starts").read_text() == "attempt 0: epoch 0, drawn 0\n"
    assert (disturbed / "starts").read_text() == (
        f"attempt 0: epoch 0, drawn 0\nattempt 1: epoch 1, drawn {4 * BATCH * 2}\n"
    )
    expected, result = checkpoint(undisturbed), checkpoint(disturbed)
    assert result["sampler"] == expected["sampler"]
    assert expected["sampler"]["epoch"] == EPOCHS
    for name, weights in expected["net"].items():
        assert torch.equal(result["net"][name], weights)
    assert str(result["optimizer"]) == str(expected["optimizer"])


def run_example(folder, *, dies):
    """In each process: the example as it is, but for notes of its starts and a sudden death."""
    example = load_example("train_distributed")
    load, attempt = example.Training.load, int(os.environ["TORCHELASTIC_RESTART_COUNT"])

    def load_and_note(training):
        load(training)
        state = training.sampler.state_dict()
        if training.sampler.rank == 0:
            with (folder / "starts").open("a") as file:
                print(
                    f"attempt {attempt}: epoch {state['epoch']}, drawn {state['drawn']}", file=file
                )

    steps = 0

    def loss_or_death(*arguments):
        nonlocal steps
        steps += 1
        if dies and attempt == 0 and distributed.get_rank() == 1 and steps == LAST_STEP:
            os.kill(os.getpid(), signal.SIGKILL)
        return click_loss(*arguments)

    example.Training.load, example.click_loss = load_and_note, loss_or_death
    options = ["--epochs", EPOCHS, "--save-every", SAVE_EVERY, "--batch-size", BATCH]
    sys.argv = list(map(str, [sys.argv[0], folder, *options, "--seed", SEED]))
    example.main()


if __name__ == "__main__":
    task, folder = sys.argv[1], Path(sys.argv[2])
    if task == "gradients":
        distributed.init_process_group("gloo")
        find_gradients(folder)
        distributed.destroy_process_group()
    else:
        run_example(folder, dies=task == "die")
