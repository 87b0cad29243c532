"""Tables that stay where they are and are read in pieces, one format a file."""

from kernsift.sources.opening import open_source, points_outside
from kernsift.sources.source import Bounds, Piece, Source

__all__ = ["Bounds", "Piece", "Source", "open_source", "points_outside"]
