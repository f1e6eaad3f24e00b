"""Which of the processes of `torch.distributed` this is."""

from __future__ import annotations

from torch import distributed

if distributed.is_available():
    # DistributedDataParallel imports it as well. Its functions have the group of that moment as a
    # default: first imported with a group in being, they keep it, and threads of it, beyond
    # destroy_process_group, and one that still frees a tensor at exit ends the process by SIGABRT.
    import torch.distributed.nn  # noqa: F401 (for its time)


def place() -> tuple[int, int]:
    """Return rank and number of processes; 0 and 1 where no group is initialised.

    >>> place()
    (0, 1)
    """
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    return 0, 1
