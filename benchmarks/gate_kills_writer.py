"""Changes a library of weights for ever, for somebody who kills it: python -m engram.benchmarks.gate_kills_writer DIR.

Prints a line for each change that is durable.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from safetensors.numpy import save

from engram.learning.weights.library import WeightsLibrary
from engram.learning.weights.manifest import make_manifest

SIZE = 100_000
"""Numbers in the weights of a version."""


def changes(library: WeightsLibrary) -> Iterator[int]:
    """Add, promote, try as a canary and roll back version after version; yield the number of changes so far."""
    count = 0
    for number in range(1_000_000):
        data = save({"w": np.full(SIZE, 1 + number, np.float32)})
        version = f"v{number}"
        library.add(data, make_manifest(data, version, library.current))
        yield (count := count + 1)
        library.approve(version, "test", canary=number % 2 == 1)
        yield (count := count + 1)
        if number % 3 == 2:
            library.roll_back("", "test")
        else:
            library.approve(version, "test")
        yield (count := count + 1)


def main() -> None:
    """Change until killed."""
    library = WeightsLibrary(Path(sys.argv[1]))
    print(0, flush=True)
    for count in changes(library):
        print(count, flush=True)


if __name__ == "__main__":
    main()
