"""Trace small torch models that are no language models, and write their assets with what torch computes.

    python torch_models.py --out DIR

needs `coreai-core`, `coreai-torch` and `torch` (1.0.0b2 and 2.9 were used). Every model becomes `DIR/model/NAME.aimodel` and
`DIR/model/NAME.safetensors` with the input `in.x` and torch's own result `out.y`, in float32. `cargo xtask conformance ops DIR` runs
them.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor, nn

import coreai_torch


class Classifier(nn.Module):
    """Convolutions with strides, dilation and groups, batch norm, pooling, a linear head."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU())
        self.depth = nn.Sequential(nn.Conv2d(8, 8, 3, padding=2, dilation=2, groups=8), nn.Hardswish(), nn.Conv2d(8, 16, 1))
        self.head = nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(self.stem(x), 2, 2)
        x = F.avg_pool2d(self.depth(x), 2, 2)
        return F.log_softmax(self.head(x.flatten(2).mean(-1)), -1)


class Encoder(nn.Module):
    """A transformer encoder: layer norm first, multi-head attention, GELU."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(12, 32)
        self.layers = nn.ModuleList(nn.ModuleDict({
            "one": nn.LayerNorm(32), "qkv": nn.Linear(32, 96), "out": nn.Linear(32, 32),
            "two": nn.LayerNorm(32), "up": nn.Linear(32, 64), "down": nn.Linear(64, 32)}) for _ in range(2))
        self.norm = nn.LayerNorm(32)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x)
        for layer in self.layers:
            q, k, v = layer["qkv"](layer["one"](x)).reshape(*x.shape[:2], 3, 4, 8).permute(2, 0, 3, 1, 4).unbind(0)
            mixed = torch.softmax(q @ k.transpose(-1, -2) * 8**-0.5, -1) @ v
            x = x + layer["out"](mixed.transpose(1, 2).flatten(2))
            x = x + layer["down"](F.gelu(layer["up"](layer["two"](x))))
        return self.norm(x)


class Unet(nn.Module):
    """Down, up and across: group norm, SiLU, resizing, a transposed convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.inside = nn.Conv2d(2, 8, 3, padding=1)
        self.norm = nn.GroupNorm(4, 8)
        self.down = nn.Conv2d(8, 16, 3, stride=2, padding=1)
        self.middle = nn.Sequential(nn.GroupNorm(4, 16), nn.SiLU(), nn.Conv2d(16, 16, 3, padding=1))
        self.up = nn.ConvTranspose2d(16, 8, 2, stride=2)
        self.smooth = nn.Conv2d(24, 8, 3, padding=1)
        self.outside = nn.Conv2d(8, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        wide = F.silu(self.norm(self.inside(x)))
        deep = self.middle(self.down(wide))
        resized = F.interpolate(deep, scale_factor=2, mode="nearest")
        joined = torch.cat([self.smooth(torch.cat([resized, wide], 1)), self.up(deep)], 1)
        smaller = F.interpolate(joined, size=(7, 9), mode="bilinear", align_corners=False)
        return torch.sigmoid(self.outside(smaller[:, :8] + smaller[:, 8:]))


MODELS = {"classifier": (Classifier, (2, 3, 32, 32)), "encoder": (Encoder, (2, 7, 12)), "unet": (Unet, (1, 2, 12, 16))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    folder = parser.parse_args().out / "model"
    folder.mkdir(parents=True, exist_ok=True)
    for name, (kind, shape) in MODELS.items():
        torch.manual_seed(3)
        model, x = kind().eval().requires_grad_(False), torch.randn(shape)
        if isinstance(model, Classifier):
            model.stem[1].running_mean.normal_()
            model.stem[1].running_var.uniform_(0.5, 2)

        def export(m: nn.Module, x: Tensor = x) -> torch.export.ExportedProgram:
            with torch.no_grad():
                program = torch.export.export(m, args=(), kwargs={"x": x})
            return program.run_decompositions(coreai_torch.get_decomp_table())

        converter = coreai_torch.TorchConverter(mode=coreai_torch.TorchConverter.Mode.RELEASE)
        converter.add_pytorch_module(model, export_fn=export, input_names=("x",), output_names=("y",), entrypoint_name="main")
        program = converter.to_coreai()
        if hasattr(program, "optimize"):  # older releases; newer ones do it while converting
            program.optimize()
        program.save_asset(folder / f"{name}.aimodel")
        save_file({"in.x": x, "out.y": model(x).contiguous()}, folder / f"{name}.safetensors")
        print(name, tuple(x.shape), tuple(model(x).shape))


if __name__ == "__main__":
    main()
