"""Tables that stay where they are and are read in pieces, one format a file."""

from kernsift.data.formats.opening import open_source, open_table, points_outside
from kernsift.data.formats.source import Bounds, CellPiece, Source

__all__ = ["Bounds", "CellPiece", "Source", "open_source", "open_table", "points_outside"]
