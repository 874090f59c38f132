"""Show one input of a reader, and the result: ``python -m tests.fuzz csv 4711``."""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.fuzz.readers import READERS

if __name__ == "__main__":
    _, _name, _number = sys.argv
    with TemporaryDirectory() as _folder:
        print(READERS[_name].input(int(_number)))
        print(READERS[_name].act(int(_number), Path(_folder))())
