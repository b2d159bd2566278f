#!/usr/bin/env python3
"""Writes an image classifier of torchvision as a folder for model.pretrained, or reads one back.

    pip install torch torchvision safetensors
    tools/convert/torchvision_weights.py resnet18 FOLDER --state resnet18.pth
    tools/convert/torchvision_weights.py alexnet FOLDER --classes 10
    tools/convert/torchvision_weights.py resnet18 runs/NAME/model --check IMAGE.npy

The first form converts a state dict that torch.save wrote, the second writes random weights of
--seed, both to FOLDER/model.safetensors. The third loads the file into torchvision's model, all
names and shapes compared, and prints the logits of IMAGE: [height, width, 3] f32, normalized.
The models are named as in torchvision: its alexnet is Troop's alexnet_torchvision.
"""

import argparse
import pathlib

import safetensors.torch
import torch
import torchvision

MODELS = ("resnet18", "resnet50", "alexnet", "vgg16")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--state", help="a state dict, written by torch.save")
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--check", help="an image as .npy: read FOLDER and print its logits")
    return parser.parse_args()


def main():
    o = arguments()
    file = o.folder / "model.safetensors"
    torch.manual_seed(o.seed)
    state = None
    if o.check:
        state = safetensors.torch.load_file(file)
    elif o.state:
        # Only tensors are read: a pickle file could contain code.
        state = torch.load(o.state, map_location="cpu", weights_only=True)
    if state:
        o.classes = len(state["fc.bias" if "fc.bias" in state else "classifier.6.bias"])
    model = torchvision.models.get_model(o.model, weights=None, num_classes=o.classes)
    if state:
        model.load_state_dict(state)
    if o.check:
        import numpy
        image = torch.from_numpy(numpy.load(o.check)).permute(2, 0, 1)[None]
        with torch.no_grad():
            print(*model.eval()(image)[0].tolist())
        return
    # The counters of updates are integers, which no network uses.
    tensors = {k: v.float().contiguous() for k, v in model.state_dict().items()
               if not k.endswith("num_batches_tracked")}
    o.folder.mkdir(parents=True, exist_ok=True)
    safetensors.torch.save_file(tensors, file, metadata={"format": "pt"})
    print(f"wrote {file}: {len(tensors)} tensors")


if __name__ == "__main__":
    main()
