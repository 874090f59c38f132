"""Errors of reading. DuckDB's text can quote rows, so it is replaced."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import duckdb
import pyarrow as pa

from dpgrain.errors import DataError, DpgrainError, raise_without_context


@contextmanager
def translate_errors(name: str) -> Iterator[None]:
    """Replace exceptions of DuckDB, Arrow and the file system: their text can quote rows."""
    try:
        yield
    except duckdb.OutOfMemoryException as error:
        raise DataError(
            f"{name} needs more memory or spill space than allowed; raise memory= in dg.read, "
            "or free disk space in the temporary folder (TMPDIR)."
        ) from error
    except duckdb.IOException as error:
        if any(word in str(error).lower() for word in ("no space", "disk", "write", "temp")):
            raise unwritable_error(name) from error
        raise DataError(
            f"{name} cannot be read; check that it exists, is readable and is a complete file."
        ) from error
    except DpgrainError:
        raise
    except (duckdb.InterruptException, RuntimeError) as error:
        if "interrupt" in str(error).lower():
            raise KeyboardInterrupt from None
        raise
    except (duckdb.Error, pa.ArrowException, OSError):
        # Streams of batches raise Arrow's exceptions or OSError.
        raise_without_context(incomplete_error(name))


def incomplete_error(name: str) -> DataError:
    """Return the error about a source that ended early."""
    return DataError(
        f"{name} cannot be read completely; check that every file is complete, or that its "
        "query runs to completion."
    )


def unwritable_error(name: str) -> DataError:
    """Return the error about a spill folder that cannot be written."""
    return DataError(
        f"The spill folder for {name} cannot be written; free disk space, or point TMPDIR to "
        "a disk with free space."
    )
