"""Tables that stay where they are and are read in pieces, one format a file."""

from kernsift.data.formats.opening import is_outside_memory, open_source, open_table
from kernsift.data.formats.source import Source

__all__ = ["Source", "is_outside_memory", "open_source", "open_table"]
