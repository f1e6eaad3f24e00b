"""The numbers by which kernels tell objectives, losses and optimizers apart.

Declared here alone, without numba: the registries (`countersample.objectives`, the optimizers) name
them, and the kernels raise ValueError for any other.
"""

RANK, LOG_RANK, DCG = range(3)  # λ, the weighting of the bound on the rank
SOFTMAX, LAMBDA = 10, 11  # in place of a λ: losses that are no function of that bound
HINGE, LOGISTIC = range(2)  # φ, the height of a pair

SGD, ADAM, ADAGRAD, DOG = range(4)
