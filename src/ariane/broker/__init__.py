"""The broker: topics, groups, sends, pulls."""
