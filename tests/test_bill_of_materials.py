"""The wheel, as it is built, with its software bill of materials."""

import json
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, metadata
from zipfile import ZipFile

import pytest
from conftest import ROOT
from packaging.metadata import Metadata
from packaging.utils import canonicalize_name

import countersample

# How older releases say what newer ones say with an identifier of SPDX.
CLASSIFIERS = {
    "Apache Software License": {"Apache-2.0"},
    "BSD License": {"BSD-2-Clause", "BSD-3-Clause"},
    "MIT License": {"MIT"},
    "Python Software Foundation License": {"PSF-2.0"},
    "The Unlicense (Unlicense)": {"Unlicense"},
}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "-d", folder]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (path,) = folder.iterdir()
    with ZipFile(path) as opened:
        yield opened


@pytest.fixture(scope="module")
def bill(wheel):
    (name,) = [name for name in wheel.namelist() if ".dist-info/sboms/" in name]
    assert (
        name == f"countersample-{countersample.__version__}.dist-info/sboms/countersample.cdx.json"
    )
    return json.loads(wheel.read(name))


def test_whose_bill_it_is(bill):
    own = bill["metadata"]["component"]
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.7")
    assert own["purl"] == f"pkg:pypi/countersample@{countersample.__version__}"
    assert own["licenses"][0]["license"]["id"] == "Apache-2.0"


def test_all_that_is_needed_is_in_it_and_nothing_else(wheel, bill):
    (name,) = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
    needed = Metadata.from_email(wheel.read(name)).requires_dist
    assert len(needed) > 14
    scopes = [("optional" if "extra ==" in str(n.marker) else "required") for n in needed]
    expected = {
        (canonicalize_name(n.name), f"vers:pypi/{n.specifier}", scope)
        for n, scope in zip(needed, scopes, strict=True)
    }
    parts = bill["components"]
    assert {(p["name"], p["versionRange"], p["scope"]) for p in parts} == expected
    assert bill["dependencies"][0]["dependsOn"] == [part["bom-ref"] for part in parts]


def test_licences_are_those_that_are_installed(bill):
    compared = 0
    for part in bill["components"]:
        try:
            installed = metadata(part["name"])
        except PackageNotFoundError:
            continue
        listed = {choice["license"]["id"] for choice in part["licenses"]}
        installed_ids = set((installed.get("License-Expression", "")).split(" AND ")) - {""}
        for classifier in [] if installed_ids else installed.get_all("Classifier", []):
            installed_ids |= CLASSIFIERS.get(classifier.rpartition(" :: ")[2], set())
        compared += bool(installed_ids)
        assert not installed_ids or listed & installed_ids, part["name"]
    assert compared > 12


def test_only_this_package_is_in_the_wheel(wheel):
    folders = {name.split("/")[0] for name in wheel.namelist()}
    assert folders == {"countersample", f"countersample-{countersample.__version__}.dist-info"}
