"""Hypothesis settings for all property tests: machines are shared, so no deadline per example."""

from hypothesis import settings

settings.register_profile("ariane", deadline=None, print_blob=True)
settings.load_profile("ariane")
