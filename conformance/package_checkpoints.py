"""The checkpoints that the packages of `coreml_lm.py` were made from, for `russet check`.

    .oracle/bin/python package_checkpoints.py --scripts DIR_OF_COREML_LM --packages DIR --out DIR [--only qwen3-lut4] [--half]

A package's recording says by which seed its model was drawn: the model is drawn again, its logits compared with the recorded ones,
and its weights saved beside the package's config and tokenizer.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import zlib
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file

FILES = ("config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json")


@torch.no_grad()
def write(scripts, shape, packages: Path, out: Path, half: bool) -> None:
    with safe_open(packages / f"{shape.name}.safetensors", "pt") as record:
        seed = int(record.metadata()["seed"])
        names = set(record.keys())
        logits = record.get_tensor("logits_uncompressed" if "logits_uncompressed" in names else "logits")
        recorded = record.get_tensor("tokens")
    random = torch.Generator().manual_seed(seed * 1000003 + zlib.crc32(shape.draw.encode()))
    model = scripts.source(shape, shape.tie).float().eval()
    scripts.randomize(model, shape, random)
    tokens, _ = scripts.choose_tokens(model, shape, random)
    again = model(tokens[None].long(), use_cache=True).logits[0].float()
    assert bool((tokens == recorded).all()) and torch.equal(again, logits), f"{shape.name} is drawn otherwise now"
    folder = out / shape.name
    folder.mkdir(parents=True, exist_ok=True)
    dtype = torch.float16 if half else torch.float32
    weights = {k: v.to(dtype).clone().contiguous() for k, v in model.state_dict().items()
               if not shape.tie or k != "lm_head.weight"}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    for name in FILES:
        if (packages / shape.name / name).exists():
            shutil.copy(packages / shape.name / name, folder / name)
    print(shape.name, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scripts", type=Path, required=True, help="the folder of coreml_lm.py")
    parser.add_argument("--packages", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", nargs="+")
    parser.add_argument("--half", action="store_true", help="round the weights to float16, as the packages hold them")
    args = parser.parse_args()
    sys.path.insert(0, str(args.scripts))
    import coreml_lm

    for shape in coreml_lm.SHAPES:
        if not args.only or shape.name in args.only:
            write(coreml_lm, shape, args.packages, args.out, args.half)


if __name__ == "__main__":
    main()
