"""Compiled kernels are cached per version of their sources.

numba finds a cached function by its own file's date and its argument types, and would not notice an edit of
another file that was inlined into it.
"""

import hashlib
import os
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_digest = hashlib.sha256()
for _source in sorted((ROOT / "pymc_dpgmm").rglob("*.py")):
    _digest.update(_source.read_bytes())
os.environ.setdefault("NUMBA_CACHE_DIR", str(ROOT / ".cache" / "numba" / _digest.hexdigest()[:16]))
