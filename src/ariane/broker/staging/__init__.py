"""Batches of rows that are staged first and published whole, once, whatever is killed meanwhile."""
