"""Copy recordings of Core ML packages without what a replay does not read.

    python3 coreml_compact.py DIR OUT NAME...

Of `DIR/NAME.safetensors` (see coreml_lm.py), `OUT/NAME.safetensors` keeps the tokens, the calls, the states and, of
`logits_f16` and `turns.logits_f16`, the rows that are numbers; `logits_f16.rows` says which tokens they belong to.
"""

import shutil
import sys
from pathlib import Path

import numpy as np
from safetensors import safe_open
from safetensors.numpy import save_file


def compact(source: Path, target: Path) -> None:
    kept = {}
    with safe_open(source, framework="numpy") as record:
        notes = record.metadata()
        for name in record.keys():
            if name in ("logits", "logits_uncompressed"):
                continue
            tensor = record.get_tensor(name)
            if name.endswith("logits_f16"):
                rows = np.flatnonzero(np.isfinite(tensor).all(axis=1)).astype(np.int32)
                kept[f"{name}.rows"] = rows
                tensor = np.ascontiguousarray(tensor[rows])
            kept[name] = tensor
    save_file(kept, target, metadata=notes)


def main() -> None:
    source, target = (Path(p) for p in sys.argv[1:3])
    for name in sys.argv[3:]:
        shutil.copytree(source / name, target / name, dirs_exist_ok=True)
        compact(source / f"{name}.safetensors", target / f"{name}.safetensors")


if __name__ == "__main__":
    main()
