"""Palettize small linear layers as `coreai-opt` does, and write their assets with what the Core AI runtime computes.

    python palettes.py --out DIR

needs `coreai-core`, `coreai-opt`, `coreai-torch` and `torch` (1.0.0b2, 0.2.1, 0.4.1 and 2.9 were used). Every palette becomes
`DIR/model/palette_NAME.aimodel` and a `.safetensors` with the input `in.x` and the runtime's result `out.y`, in float32. `cargo xtask
conformance ops DIR` runs them.
"""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path
from typing import Any

import coreai_torch
import numpy as np
import torch
from coreai.runtime import NDArray
from coreai_opt.palettization import KMeansPalettizer, KMeansPalettizerConfig, ModuleKMeansPalettizerConfig, PalettizationSpec
from coreai_opt.palettization.spec import PerGroupedChannelGranularity as Groups
from coreai_opt.quantization.spec import QuantizationScheme, QuantizationSpec
from safetensors.torch import save_file
from torch import Tensor, nn

BYTES = QuantizationSpec(dtype=torch.int8, qscheme=QuantizationScheme.SYMMETRIC)
SMALL = QuantizationSpec(dtype=torch.float8_e4m3fn, qscheme=QuantizationScheme.SYMMETRIC)
SPECS = {
    "tensor_1": PalettizationSpec(n_bits=1),
    "tensor_8": PalettizationSpec(n_bits=8),
    "groups_4": PalettizationSpec(n_bits=4, granularity=Groups(axis=0, group_size=8)),
    "groups_6": PalettizationSpec(n_bits=6, granularity=Groups(axis=0, group_size=32)),
    "columns_4": PalettizationSpec(n_bits=4, granularity=Groups(axis=1, group_size=16)),
    "channel_scale_2": PalettizationSpec(n_bits=2, granularity=Groups(axis=0, group_size=32), enable_per_channel_scale=True),
    "int8_table_4": PalettizationSpec(n_bits=4, lut_qspec=BYTES, granularity=Groups(axis=0, group_size=16)),
    "float8_table_4": PalettizationSpec(n_bits=4, lut_qspec=SMALL),
    "vectors_4": PalettizationSpec(n_bits=4, cluster_dim=2),
}


async def run(asset: Any, x: np.ndarray) -> np.ndarray:
    """What the runtime computes."""
    async with asset.executable() as model:
        results = await model.load_function("main")(inputs={"x": NDArray(x)})
        return np.array(results["y"].numpy())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    folder = parser.parse_args().out / "model"
    folder.mkdir(parents=True, exist_ok=True)
    for name, spec in SPECS.items():
        torch.manual_seed(1)
        model, x = nn.Sequential(nn.Linear(64, 96, bias=False), nn.SiLU(), nn.Linear(96, 64)).eval(), torch.randn(1, 5, 64)
        config = KMeansPalettizerConfig(global_config=ModuleKMeansPalettizerConfig(
            op_state_spec={"weight": spec}, enable_fast_kmeans_mode=spec.cluster_dim == 1))
        palettizer = KMeansPalettizer(model.requires_grad_(False), config)
        palettizer.prepare((x,))(x)

        def export(m: nn.Module, x: Tensor = x) -> torch.export.ExportedProgram:
            with torch.no_grad():
                program = torch.export.export(m, args=(x,))
            return program.run_decompositions(coreai_torch.get_decomp_table())

        converter = coreai_torch.TorchConverter(mode=coreai_torch.TorchConverter.Mode.RELEASE)
        model = palettizer.finalize()
        converter.add_pytorch_module(model, export_fn=export, input_names=("x",), output_names=("y",), entrypoint_name="main")
        program = converter.to_coreai()
        if hasattr(program, "optimize"):  # older releases; newer ones do it while converting
            program.optimize()
        asset = program.save_asset(folder / f"palette_{name}.aimodel")
        y = torch.from_numpy(asyncio.run(run(asset, x.numpy())))
        save_file({"in.x": x, "out.y": y}, folder / f"palette_{name}.safetensors")
        print(name, tuple(y.shape))


if __name__ == "__main__":
    main()
