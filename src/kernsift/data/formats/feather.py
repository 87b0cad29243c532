"""Arrow IPC files, which Feather files of version 2 are.

They are mapped: of a batch that is not compressed only the columns that are used are read, and of a compressed one
only those are unpacked. A map is kept for one piece, so that its pages are released, and the file is checked before it
is mapped: access to a map of a file that was truncated ends the process.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from kernsift.data.formats.arrow import Fragment
from kernsift.data.formats.file_stamps import FileStamp


class FeatherFragment(Fragment):
    """One file, opened for every piece."""

    kind, reads_all_columns = "a Feather file", True

    def __init__(self, path: str, argument: str) -> None:
        super().__init__(path, argument, FileStamp.of(path, argument))
        with self._opened() as reader:
            self.schema = reader.schema
            batches = reader.num_record_batches
        # Compressed batches say how long they are only when a column is read, so the first one is.
        with self._opened([0] if len(self.schema) else []) as reader:
            self.sizes = np.array([reader.get_batch(i).num_rows for i in range(batches)], dtype=np.int64)

    def load(self, first: int, last: int, names: Sequence[str], reader: Any) -> Any:
        import pyarrow as pa

        with self._opened([self.schema.get_field_index(name) for name in names]) as reader:
            batches = [reader.get_batch(i) for i in range(first, last)]
            return pa.Table.from_batches(batches, schema=reader.schema).select(list(names))

    @contextmanager
    def _opened(self, fields: Sequence[int] = ()) -> Iterator[Any]:
        import pyarrow as pa

        with self._reading():
            self.check()
            options = pa.ipc.IpcReadOptions(included_fields=list(fields))
            yield pa.ipc.open_file(pa.memory_map(self.name), options=options)
