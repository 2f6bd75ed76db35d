"""The ariane command."""
