"""Methods can be told apart with any colour vision.

Colour blindness is simulated by the matrices of Machado, Oliveira and Fernandes (2009), severity 1,
on linear RGB; distances are Euclidean in Oklab (Ottosson 2020), × 100. Black and white are 100
apart, and below about 2 two colours side by side look the same.
"""

import itertools
import re
from importlib.resources import files

import numpy as np
import pytest

from countersample.pages.charts import (
    STYLES,
)

VISION = {
    "usual": np.eye(3),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216],
         [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413],
         [-0.011820, 0.042940, 0.968881]]
    ),
    "tritanopia": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602],
         [0.004733, 0.691367, 0.303900]]
    ),
}  # fmt: skip
TO_LMS = np.array(
    [[0.4122214708, 0.5363325363, 0.0514459929], [0.2119034982, 0.6806995451, 0.1073969566],
     [0.0883024619, 0.2817188376, 0.6299787005]]
)  # fmt: skip
TO_OKLAB = np.array(
    [[0.2104542553, 0.7936177850, -0.0040720468], [1.9779984951, -2.4285922050, 0.4505937099],
     [0.0259040371, 0.7827717662, -0.8086757660]]
)  # fmt: skip
OF_THE_PAPER = [("naive", "click"), ("ips", "click"), ("countersample", "click")]
LEAST = 7.5  # between any two methods
LEAST_OF_THE_PAPER = 9.0  # between the three that are in every figure


def rgb(colour):
    return np.array([int(colour[place : place + 2], 16) for place in (1, 3, 5)]) / 255


def linear(channels):
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


def seen(channels, vision):
    """Where a colour is in Oklab, × 100, as someone with this vision sees it."""
    light = np.clip(VISION[vision] @ linear(channels), 0, 1)
    return 100 * TO_OKLAB @ np.cbrt(TO_LMS @ light)


def distance(a, b, vision):
    return float(np.linalg.norm(seen(a, vision) - seen(b, vision)))


@pytest.fixture(params=["figures", "light", "dark"])
def shown(request):
    """Colours of all methods, in figures and on the page."""
    if request.param == "figures":
        return {method: rgb(style.colour) for method, style in STYLES.items()}
    css = files("countersample.pages").joinpath("style.css").read_text()
    parts = re.findall(r":root \{(.*?)\}", css, re.DOTALL)
    named = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", parts[request.param == "dark"]))
    return {method: rgb(named["-".join(method)]) for method in STYLES}


@pytest.mark.parametrize("vision", VISION)
def test_methods_can_be_told_apart(shown, vision):
    for a, b in itertools.combinations(shown, 2):
        least = LEAST_OF_THE_PAPER if {a, b} <= set(OF_THE_PAPER) else LEAST
        assert distance(shown[a], shown[b], vision) >= least, (a, b)
