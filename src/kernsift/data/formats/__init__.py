"""Tables that are read in pieces, from files or from other libraries: one module for each format."""

from kernsift.data.formats.opening import is_outside_memory, open_source, open_table
from kernsift.data.formats.source import Source

__all__ = ["Source", "is_outside_memory", "open_source", "open_table"]
