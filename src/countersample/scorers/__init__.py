"""What is served: the function from (normalised) features to scores that a fitted ranker keeps.

A scorer is plain arrays. It needs neither PyTorch nor a boosting library, is kept in the ranker's
file, and is what `countersample.export` translates for other systems.
"""

from countersample.scorers.linear import LinearScorer
from countersample.scorers.network import NetworkScorer
from countersample.scorers.trees import TreesScorer

__all__ = ["LinearScorer", "NetworkScorer", "Scorer", "TreesScorer"]

Scorer = LinearScorer | NetworkScorer | TreesScorer
