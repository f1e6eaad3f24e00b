"""Put a software bill of materials into the wheel (PEP 770, CycloneDX), made of pyproject.toml.

A wheel fixes no versions and brings nobody's code but its own, so that the bill says which versions
are taken, not which are installed: `pip inspect` says that, where it is installed.
"""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from packaging.requirements import Requirement

NAME = "countersample.cdx.json"
# Of each project's own code, as its releases say; what their wheels bundle has licences beside it.
LICENCES = {
    "backports-zstd": ("PSF-2.0",),
    "cyclopts": ("Apache-2.0",),
    "duckdb": ("MIT",),
    "jinja2": ("BSD-3-Clause",),
    "lightgbm": ("MIT",),
    "markdown-it-py": ("MIT",),
    "matplotlib": ("PSF-2.0",),  # with matplotlib's names in it
    "msgspec": ("BSD-3-Clause",),
    "narwhals": ("MIT",),
    "numba": ("BSD-2-Clause",),
    "numpy": ("BSD-3-Clause",),
    "onnx": ("Apache-2.0",),
    "onnxruntime": ("MIT",),
    "pandas": ("BSD-3-Clause",),
    "platformdirs": ("MIT",),
    "polars": ("MIT",),
    "pyarrow": ("Apache-2.0",),
    "pyspark": ("Apache-2.0",),
    "rich": ("MIT",),
    "scikit-learn": ("BSD-3-Clause",),
    "scipy": ("BSD-3-Clause",),
    "sqlglot": ("MIT",),
    "threadpoolctl": ("BSD-3-Clause",),
    "torch": ("BSD-3-Clause",),
    "xgboost": ("Apache-2.0",),
}


class SoftwareBillOfMaterials(BuildHookInterface):
    """Writes the bill when a wheel is built."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002 (of Hatch)
        """Name the bill among what goes into the wheel."""
        core = self.metadata.core
        bill = bill_of_materials(
            core.name,
            self.metadata.version,
            core.license_expression,
            core.dependencies,
            core.optional_dependencies,
        )
        self._folder = TemporaryDirectory()
        path = Path(self._folder.name, NAME)
        path.write_text(json.dumps(bill, indent=1) + "\n", encoding="utf-8")
        build_data["sbom_files"].append(str(path))

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002 (of Hatch)
        """Remove the file that the wheel has a copy of."""
        self._folder.cleanup()


def bill_of_materials(
    name: str,
    version: str,
    licence: str,
    dependencies: list[str],
    extras: dict[str, list[str]],
) -> dict[str, Any]:
    """Return the bill of a package, with what it needs always and what its extras need."""
    parts = [_component(needed, "required") for needed in dependencies]
    parts += [_component(needed, "optional") for extra in extras.values() for needed in extra]
    refs = [part["bom-ref"] for part in parts]
    own = {
        "type": "library",
        "bom-ref": name,
        "name": name,
        "version": version,
        "licenses": [{"license": {"id": licence, "acknowledgement": "declared"}}],
        "purl": f"pkg:pypi/{name}@{version}",
    }
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.7.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.7",
        "version": 1,
        "metadata": {"lifecycles": [{"phase": "build"}], "component": own},
        "components": parts,
        "dependencies": [{"ref": name, "dependsOn": refs}],
        "compositions": [  # what those need in their turn is theirs to say
            {"aggregate": "complete", "dependencies": [name]},
            {"aggregate": "unknown", "dependencies": refs},
        ],
    }


def _component(needed: str, scope: str) -> dict[str, Any]:
    requirement = Requirement(needed)
    purl = f"pkg:pypi/{requirement.name}"
    bounds = "|".join(sorted(map(str, requirement.specifier)))
    return {
        "type": "library",
        "bom-ref": purl,
        "name": requirement.name,
        "versionRange": f"vers:pypi/{bounds or '*'}",
        "isExternal": True,  # installed beside the wheel, not in it
        "scope": scope,
        "licenses": [
            {"license": {"id": licence, "acknowledgement": "declared"}}
            for licence in LICENCES[requirement.name]
        ],
        "purl": purl,
        "properties": [{"name": "countersample:requirement", "value": needed}],
    }
