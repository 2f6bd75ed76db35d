"""Ariane on Spark: a source, a sink and pipelines over them.

Importing this package imports no Spark: that waits until a session is made or Spark asks for the
source.
"""

from ariane.spark.session import session

__all__ = ["session"]
