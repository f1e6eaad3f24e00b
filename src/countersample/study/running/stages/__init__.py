"""What each job of a study does, from labelled data to runs: a file for what shares its code."""

from countersample.study.running.stages import network
from countersample.study.running.stages.clicks import diagnosis, simulate
from countersample.study.running.stages.comparing import length_of
from countersample.study.running.stages.labelled import prepare_data, relevance, shape
from countersample.study.running.stages.supervision import levels, references
from countersample.study.running.stages.training import run, tune
from countersample.study.running.stages.users import ranker

__all__ = [
    "diagnosis",
    "length_of",
    "levels",
    "network",
    "prepare_data",
    "ranker",
    "references",
    "relevance",
    "run",
    "shape",
    "simulate",
    "tune",
]
