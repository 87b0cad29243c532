"""pyarrow data sets of any format and file system, read fragment by fragment.

Local Parquet and Feather files have their own readers, which keep files open and read row groups separately: a fragment
opens its file for every piece, and a Feather fragment cannot be read from the middle.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kernsift.data.formats.arrow import ArrowSource, Fragment
from kernsift.data.formats.feather import FeatherFragment
from kernsift.data.formats.file_stamps import FileStamp, guarded
from kernsift.data.formats.parquet import ParquetFragment
from kernsift.exceptions import InputError, quoted


class DatasetFragment(Fragment):
    """One fragment, usually a file, which it opens itself; the keys in the names of its folders are columns."""

    kind = "a part of a data set"

    def __init__(self, fragment: Any, schema: Any, argument: str) -> None:
        from pyarrow import dataset

        name = str(getattr(fragment, "path", "") or "a fragment of the data set")
        super().__init__(name, argument, *([FileStamp.of(name, argument)] if _is_local(fragment) else []))
        self.schema, self._fragment = schema, fragment
        with self._reading():
            keys = set(dataset.get_partition_keys(fragment.partition_expression))
            lacking = [name for name in schema.names if name not in {*fragment.physical_schema.names, *keys}]
            groups = getattr(fragment, "row_groups", None)
            self._grouped = groups is not None
            self.sizes = np.array([one.num_rows for one in groups] if groups is not None else [fragment.count_rows()])
        if lacking:
            raise InputError(
                f"{argument}: {self.name} lacks the column {quoted(lacking)}, which other parts have; write all parts "
                "with the same columns."
            )

    def load(self, first: int, last: int, names: Sequence[str], reader: Any) -> Any:
        with self._reading():
            wanted = self._fragment
            if self._grouped:
                ids = [group.id for group in wanted.row_groups[first:last]]
                wanted = wanted.subset(row_group_ids=ids)
            return wanted.to_table(schema=self.schema, columns=list(names))


def _is_local(fragment: Any) -> bool:
    from pyarrow import fs

    return isinstance(getattr(fragment, "filesystem", None), fs.LocalFileSystem)


def dataset_source(data: Any, argument: str) -> ArrowSource:
    """A pyarrow data set."""
    with guarded(argument, "the data set", "a data set"):
        fragments = list(data.get_fragments())
    if not fragments:
        raise InputError(f"{argument}: the data set has no files; check its path.")
    found: list[Fragment] = []
    for fragment in fragments:
        with guarded(argument, str(getattr(fragment, "path", "") or "a fragment"), "a part of a data set"):
            found.append(_reader_of(fragment, data.schema, argument))
    return ArrowSource(found, argument)


def _reader_of(fragment: Any, schema: Any, argument: str) -> Fragment:
    """The reader of a fragment."""
    import pyarrow as pa
    from pyarrow import dataset

    keys = dataset.get_partition_keys(fragment.partition_expression)
    if _is_local(fragment):
        own: Fragment | None = None
        if isinstance(fragment.format, dataset.ParquetFileFormat):
            values = {name: pa.array([keys[name]], schema.field(name).type) for name in schema.names if name in keys}
            # A fragment may be some groups of a file.
            if fragment.num_row_groups == fragment.metadata.num_row_groups:
                own = ParquetFragment(fragment.path, argument, values)
        elif isinstance(fragment.format, dataset.IpcFileFormat) and not keys:
            own = FeatherFragment(fragment.path, argument)
        # Another schema than that of the file casts columns, or leaves some out.
        if own is not None and own.schema.equals(schema):
            return own
    return DatasetFragment(fragment, schema, argument)
