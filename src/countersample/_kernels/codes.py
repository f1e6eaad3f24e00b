"""The numbers by which kernels tell objectives, losses and optimizers apart.

Declared here alone, without numba: the registries (`countersample.objectives`, the optimizers) name
them, and the kernels raise ValueError for any other.
"""

# λ, the weighting of the bound on the rank. A code below 0 is that of precision@k: −k. One of at
# least OWN is the address of a λ of the user's own (`_kernels.own_weighting`).
RANK, LOG_RANK, DCG, SQUARED_RANK, LOG_RANK_PAPER, DCG_PAPER = range(6)
OWN = 1 << 16  # no system puts code below it
SOFTMAX, LAMBDA = 10, 11  # in place of a λ: losses that are no function of that bound
HINGE, LOGISTIC = range(2)  # φ, the height of a pair

SGD, ADAM, ADAGRAD, DOG, AMSGRAD = range(5)
