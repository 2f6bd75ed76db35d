"""Ariane on Spark: a source, a sink and pipelines over them."""
