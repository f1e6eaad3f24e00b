"""Rankers for other systems: ONNX, Elasticsearch, OpenSearch, Solr, SQL; each with a card."""

from countersample.export.exporting import Exported, export

__all__ = ["Exported", "export"]
