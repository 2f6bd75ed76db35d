"""Popping: messages lent out one by one, each for a time, to any number of consumers of a group."""
