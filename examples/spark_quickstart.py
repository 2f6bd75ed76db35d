"""Two hours of three shops' orders through a topic, counted by Spark and drawn.

A notebook in a file: each `# %%` begins a cell, as VS Code, PyCharm, Spyder and Jupytext read
them; run as a program it does the same. A broker must be up (`ariane up`); the plot is orders.svg.
"""

# %% [markdown]
# ## A session
# Spark runs in this process. The broker's address comes from the environment, or is the usual one.

# %%
import os
import uuid
from pathlib import Path

from pyspark.sql import functions as f

from ariane.spark import session

NAMESRV = os.environ.get("ARIANE_NAMESRV", "127.0.0.1:9876")
OUTPUT = Path(os.environ.get("ARIANE_EXAMPLE_OUTPUT", "."))
TOPIC = f"orders_{uuid.uuid4().hex[:8]}"
ORDERS = 20_000
SHOPS = ("Lyon", "Nantes", "Lille")

spark = session("quickstart")

# %% [markdown]
# ## Orders as messages
# Each shop has a rhythm of its own. When an order was made is in its body: messages may be late.

# %%
second = f"7200 * id / {ORDERS} + 400 * sin(id / {ORDERS} * 9 + 2 * (id % 3))"
orders = spark.range(ORDERS).selectExpr(
    "concat('order-', id) AS keys",
    f"element_at(array{SHOPS}, CAST(id % 3 + 1 AS INT)) AS tags",
    f"to_json(named_struct('amount', 5 + id % 40, 'second', {second})) AS body",
)
sink = orders.write.format("rocketmq").option("namesrv", NAMESRV).option("topic", TOPIC)
sink.mode("append").save()

# %% [markdown]
# ## Orders a minute, as a stream
# The schema names what we need of a message; the rest is never decoded. With `availableNow` the
# stream takes what is there and ends.

# %%
messages = (
    spark.readStream.format("rocketmq")
    .option("namesrv", NAMESRV)
    .option("subscribe", TOPIC)
    .option("startingOffsets", "earliest")
    .schema("tags string, body binary")
    .load()
)
order = f.from_json(f.col("body").cast("string"), "amount INT, second DOUBLE")
counted = (
    messages.select(f.col("tags").alias("shop"), order.alias("order"))
    .withColumn("minute", f.floor(f.col("order.second") / 60))
    .groupBy("shop", "minute")
    .agg(f.count("*").alias("orders"), f.sum("order.amount").alias("revenue"))
)
query = (
    counted.writeStream.format("memory")
    .queryName("per_minute")
    .outputMode("complete")
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
per_minute = spark.table("per_minute").orderBy("shop", "minute").collect()

# %% [markdown]
# ## The plot
# A line for each shop. SVG is text, so nothing else is needed to draw it.

# %%
WIDTH, HEIGHT, MARGIN = 720, 320, 40
COLOURS = ("#2563eb", "#d97706", "#059669")


def plot(rows, path):
    """Draw orders a minute by shop."""
    first, last = (pick(row["minute"] for row in rows) for pick in (min, max))
    most = max(row["orders"] for row in rows)

    def point(row):
        x = MARGIN + (row["minute"] - first) / max(1, last - first) * (WIDTH - 2 * MARGIN)
        y = HEIGHT - MARGIN - row["orders"] / most * (HEIGHT - 2 * MARGIN)
        return f"{x:.1f},{y:.1f}"

    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}"'
        ' font-family="sans-serif" font-size="12">',
        f'<text x="{MARGIN}" y="20">orders a minute, at most {most}</text>',
    ]
    for number, shop in enumerate(SHOPS):
        points = " ".join(point(row) for row in rows if row["shop"] == shop)
        colour = COLOURS[number]
        lines.append(
            f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="{points}"/>'
        )
        x = WIDTH - MARGIN - 80 * (len(SHOPS) - number)
        lines.append(f'<text x="{x}" y="20" fill="{colour}">{shop}</text>')
    path.write_text("\n".join([*lines, "</svg>"]) + "\n")


plot(per_minute, OUTPUT / "orders.svg")
print(f"{ORDERS} orders, {len(per_minute)} points; see {OUTPUT / 'orders.svg'}")
