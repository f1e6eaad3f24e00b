"""The codes of objectives, losses and optimizers in kernels.

This module does not import numba. The registries (`countersample.objectives`, the optimizers) map
names to these codes, and the kernels raise ValueError for any other.
"""

# λ, the weighting of the bound on the rank. A code below 0 is −k and means precision@k. A code
# of at least OWN is the address of a λ of the user (`_kernels.objectives`).
RANK, LOG_RANK, DCG, SQUARED_RANK, LOG_RANK_PAPER, DCG_PAPER = range(6)
OWN = 1 << 16  # no system puts code at a lower address
SOFTMAX, LAMBDA = 10, 11  # instead of a λ: losses that are not a function of that bound
HINGE, LOGISTIC = range(2)  # φ, the loss of a pair

SGD, ADAM, ADAGRAD, DOG, AMSGRAD = range(5)
