"""Rankers for other systems: ONNX, Elasticsearch, OpenSearch, Solr, SQL; each with a card."""

from countersample.export.targets import Exported, export

__all__ = ["Exported", "export"]
