"""What the weights of a static bundle say in float32 (environment of `coreai_static.py`, which is imported).

    python conformance/static_tokens.py --static FOLDER-OF-coreai_static.py --record FOLDER/static.safetensors \
        --out fixtures/static/tokens.json

The layers run on all tokens at once, without a cache, in float32: what the engine says step by step, over functions of several shapes,
should be the same. The prompt ends before the first context is full and the answer after it; of random tokens the logits are
recorded at some places.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open


def record(cs: Any, model: Any, table: torch.Tensor, scale: float, seed: int, out: Path) -> None:
    """Writes what a model of `coreai_static` (`cs`) gives in float32."""
    model.eval().requires_grad_(False)
    model.scale = scale
    rows = table.reshape(cs.VOCAB, cs.HIDDEN).float() * scale

    def logits(tokens: list[int]) -> torch.Tensor:
        n = len(tokens)
        mask = torch.full((1, n, 1, n), -40000.0)
        for i in range(n):
            mask[0, : i + 1, 0, i] = 0
        cache = torch.zeros(cs.LAYERS, 1, cs.KV_HEADS * cs.HEAD_DIM, 1, n)
        out = model(rows[tokens].reshape(1, n, 1, cs.HIDDEN), torch.arange(n)[None], torch.zeros(1, dtype=torch.int32), mask,
                    cache, cache.clone(), table.float())
        return out.reshape(n, cs.VOCAB)[-1]

    prompt = np.random.default_rng(seed).integers(0, cs.VOCAB, size=230).tolist()
    answer: list[int] = []
    gaps: list[float] = []
    while len(answer) < 60:
        best = logits(prompt + answer).topk(2)
        answer.append(int(best.indices[0]))
        gaps.append(float(best.values[0] - best.values[1]))
    tokens = np.random.default_rng(seed + 1).integers(0, cs.VOCAB, size=300).tolist()
    rows_at = {n: [round(v, 3) for v in logits(tokens[:n]).tolist()] for n in (1, 8, 9, 64, 65, 230, 256, 257, 300)}
    out.write_text(json.dumps({"prompt": prompt, "answer": answer, "tokens": tokens, "logits": rows_at}) + "\n")
    print(f"{len(answer)} tokens, {len(set(answer))} different, least gap {min(gaps):.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--static", type=Path, required=True)
    parser.add_argument("--record", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=3)
    args = parser.parse_args()
    sys.path.insert(0, str(args.static))
    import coreai_static as cs

    with safe_open(args.record, "pt") as file:
        weights = {k.removeprefix("weights."): file.get_tensor(k) for k in file.keys() if k.startswith("weights.")}
        table, scale = file.get_tensor("embedding_table"), float(file.metadata()["scale"])
    model = cs.Extend()
    model.load_state_dict(weights)
    record(cs, model, table, scale, args.seed, args.out)


if __name__ == "__main__":
    main()
