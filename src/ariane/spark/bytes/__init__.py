"""The three ways from a range of queue offsets to Arrow batches."""
