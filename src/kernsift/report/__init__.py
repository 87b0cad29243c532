"""A result made visible: in words, as pictures, as a report."""
