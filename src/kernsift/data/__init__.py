"""Input: any table, in memory or in files, becomes a `Table` of float columns."""
