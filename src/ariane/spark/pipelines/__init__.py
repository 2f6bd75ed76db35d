"""Ready-made Spark jobs around topics: each a module with a `Config` and a `run(spark, config)`.

from ariane.spark.pipelines import archive
archive.run(spark, archive.Config(topics=("orders",), lake="/data/lake"))

`ariane pipeline run archive --topics orders --lake /data/lake` is the same. Rows are never touched
by Python: what a pipeline does to them is said in Spark's own functions.
"""
