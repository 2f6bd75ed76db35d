"""Ariane beneath other libraries: each module needs the library it is named for, an extra."""
