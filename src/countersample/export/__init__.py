"""Rankers for other systems: ONNX, Elasticsearch, OpenSearch, Solr; each with a model card."""

from countersample.export.exporting import Exported, export

__all__ = ["Exported", "export"]
