"""Compare `russet inspect --json` with what the Core AI runtime says of the same assets.

    python inspect_agrees.py --russet target/release/russet DIR [DIR ...]

needs `coreai-core` (1.0.0b3 was used). Every `.aimodel` below the folders is described by
`AIModelAsset.load(path).summary(include_statistics=True)` and by `russet inspect path --json`; compared are the functions, the
names and types of their inputs, outputs and states, how often each operation occurs, how many elements of each type the constants
hold, and the types computed with. Each difference is printed; the last line counts assets; the exit code is 1 if any differs.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path

from coreai.authoring import AIModelAsset

Facts = dict[str, object]


def described(text: str) -> str:
    """`NDArray (Float16, 1 × ? × 320)` as `Float16[1,?,320]`; anything else unchanged."""
    match = re.fullmatch(r"NDArray \((\w+)(?:, (.*))?\)", text)
    if not match:
        return text
    shape = [d.strip() for d in (match[2] or "").split("×") if d.strip()]
    return f"{match[1]}[{','.join(shape)}]"


def oracle(path: Path) -> Facts:
    summary = AIModelAsset.load(path).summary(include_statistics=True)
    facts: Facts = {"functions": list(summary.function_names)}
    ports = {"inputs": summary.function_inputs, "outputs": summary.function_outputs, "states": summary.function_states}
    for function in summary.function_names:
        for kind, read in ports.items():
            facts[f"{function}.{kind}"] = [(name, described(text)) for name, text in read(function)]
    facts["operations"] = dict(summary.operation_distribution)
    facts["storage"] = dict(summary.storage_types)
    facts["compute"] = sorted(summary.compute_types)
    return facts


def ours(russet: Path, path: Path) -> Facts:
    done = subprocess.run([russet, "inspect", "--json", path], capture_output=True, text=True, check=False)
    if done.returncode:
        return {"error": done.stderr.strip()}
    seen = json.loads(done.stdout)
    facts: Facts = {"functions": [f["name"] for f in seen["functions"]]}
    for function in seen["functions"]:
        for kind in ("inputs", "outputs", "states"):
            facts[f"{function['name']}.{kind}"] = [
                (p["name"], f"{p['type']}[{','.join('?' if d is None else str(d) for d in p['shape'])}]") for p in function[kind]
            ]
    return facts | {"operations": seen["operations"], "storage": seen["storage"], "compute": sorted(seen["compute"])}


def differences(expected: Facts, found: Facts) -> list[str]:
    if "error" in found:
        return [str(found["error"])]
    lines = []
    for key in expected | found:
        a, b = expected.get(key), found.get(key)
        if isinstance(a, dict) and isinstance(b, dict):
            lines += [f"{key}.{k}: {a.get(k)} expected, {b.get(k)} found" for k in sorted(a | b) if a.get(k) != b.get(k)]
        elif a != b:
            lines.append(f"{key}: {a} expected, {b} found")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--russet", type=Path, default=Path("target/release/russet"))
    parser.add_argument("folders", type=Path, nargs="+")
    args = parser.parse_args()
    assets = sorted(p for folder in args.folders for p in [folder, *folder.rglob("*.aimodel")] if p.suffix == ".aimodel")
    differ = 0
    for path in assets:
        lines = differences(oracle(path), ours(args.russet, path))
        differ += bool(lines)
        for line in lines:
            print(f"{path}: {line}", flush=True)
    print(f"{len(assets)} assets: {len(assets) - differ} agree, {differ} differ")
    sys.exit(1 if differ or not assets else 0)


if __name__ == "__main__":
    main()
