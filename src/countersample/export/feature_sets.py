"""Definitions of features for search engines, to be filled in.

A ranker has the names of its features, but not how an engine computes them. So each feature is
defined as the value of the document's field of its name. Replace it if the feature is something
else, such as a match of the words of the query or a distance.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from countersample import pages
from countersample._files import is_folder, is_other, read_at_most
from countersample._json import parse_json
from countersample.errors import DataError, ParameterError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

ENDING = ".features.json"
INDEX = "MY_INDEX"  # to be replaced by the user
PARAM = "keywords"  # the name of the words of the query in requests
_MOST_BYTES = 1 << 26


def search_features(names: Sequence[str]) -> dict[str, Any]:
    """Return the body of ``POST _ltr/_featureset/NAME`` of Elasticsearch and OpenSearch.

    The engine validates it with a query before it stores it, so a missing field is an error at
    once. A document without the field does not match, which leaves its feature missing.
    """
    features = [
        {
            "name": name,
            "params": [PARAM],
            "template_language": "mustache",
            "template": {
                "function_score": {
                    "query": {"exists": {"field": name}},
                    "functions": [{"field_value_factor": {"field": name}}],
                    "boost_mode": "replace",
                }
            },
        }
        for name in names
    ]
    return {
        "validation": {"params": {PARAM: "shoes"}, "index": INDEX},
        "featureset": {"features": features},
    }


def solr_features(names: Sequence[str], store: str | None) -> list[dict[str, Any]]:
    """Return the body of ``PUT schema/feature-store`` of Solr."""
    place = {} if store is None else {"store": store}
    return [
        {
            **place,
            "name": name,
            "class": "org.apache.solr.ltr.feature.FieldValueFeature",
            "params": {"field": name},
        }
        for name in names
    ]


def as_file(definition: object) -> bytes:
    """Return a definition as JSON for people, who fill it in."""
    return (json.dumps(definition, ensure_ascii=False, indent=2) + "\n").encode()


def link(file: str) -> str:
    """Return a link to a file beside a card, in Markdown."""
    return f"[{pages.escape_markdown(file)}]({quote(file)})"


def has_definition(path: Path, definition: bytes) -> bool:
    """Return whether there is a definition already, which stays: a person may have filled it in.

    A definition that lacks a feature of this ranker raises an error.
    """
    if is_folder(path):
        raise ParameterError(f"{path} is a folder, expected the name of a file")
    if not is_other(path):
        return False
    needed = names_of(json.loads(definition))
    try:
        defined = names_of(parse_json(read_at_most(path, _MOST_BYTES)))
    except (DataError, OSError, UnicodeDecodeError, ValueError):
        defined = []
    lacking = [name for name in needed if name not in set(defined)]
    if not defined or lacking:
        what = f"has no feature {lacking[0]!r}" if defined else "is no definition of features"
        raise ParameterError(
            f"{path}: {what}, expected one of the features of this ranker, for the model to be "
            "beside it: move it away, and it is written anew, or give the model another name"
        )
    return True


def names_of(definition: Any) -> list[str]:  # noqa: ANN401 (JSON)
    """Return the names of the features of a definition; none if it is not a definition."""
    if isinstance(definition, dict):  # Elasticsearch and OpenSearch
        inner = definition.get("featureset")
        definition = inner.get("features") if isinstance(inner, dict) else None
    if not isinstance(definition, list):
        return []
    names = [each.get("name") for each in definition if isinstance(each, dict)]
    return [name for name in names if isinstance(name, str)]
