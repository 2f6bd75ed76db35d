"""One module per family of requests; dispatch.py lists them all."""
