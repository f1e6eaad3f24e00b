"""Definitions of features for search engines, to be filled in: what a model asks for by name.

A ranker knows the names of its features, and not how an engine computes them. So each feature is
defined as the value of the document's field of its name, which is to be replaced where it is
something else: a match of the words of the query, a distance.
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
INDEX = "MY_INDEX"  # which the user's own replaces
PARAM = "keywords"  # what requests call the words of the query
_MOST_BYTES = 1 << 26


def search_features(names: Sequence[str]) -> dict[str, Any]:
    """Return the body of ``POST _ltr/_featureset/NAME`` of Elasticsearch and OpenSearch.

    It validates itself with a query before it is stored, so that a field that is not there is an
    error at once. A document without the field does not match, which leaves its feature missing.
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
    """Return what is uploaded to ``schema/feature-store`` of Solr."""
    where = {} if store is None else {"store": store}
    return [
        {
            **where,
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


def is_kept(path: Path, definition: bytes) -> bool:
    """Whether a definition is there already, and stays, as a person may have filled it in.

    One that does not have the features of this ranker is refused, for a model would ask for what is
    not there.
    """
    if is_folder(path):
        raise ParameterError(f"{path} is a folder, expected the name of a file")
    if not is_other(path):
        return False
    wanted = names_of(json.loads(definition))
    try:
        found = names_of(parse_json(read_at_most(path, _MOST_BYTES)))
    except (DataError, OSError, UnicodeDecodeError, ValueError):
        found = []
    lacking = [name for name in wanted if name not in set(found)]
    if not found or lacking:
        what = f"has no feature {lacking[0]!r}" if found else "is no definition of features"
        raise ParameterError(
            f"{path}: {what}, expected one of the features of this ranker, for the model to be "
            "beside it: move it away, and it is written anew, or give the model another name"
        )
    return True


def names_of(definition: Any) -> list[str]:  # noqa: ANN401 (JSON)
    """Return the names of the features of a definition; none where it is not one."""
    if isinstance(definition, dict):  # of Elasticsearch and OpenSearch
        inner = definition.get("featureset")
        definition = inner.get("features") if isinstance(inner, dict) else None
    if not isinstance(definition, list):
        return []
    named = [each.get("name") for each in definition if isinstance(each, dict)]
    return [name for name in named if isinstance(name, str)]
