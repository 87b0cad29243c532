"""The command line: files in, a table out."""

from kernsift.cli.app import main

__all__ = ["main"]
