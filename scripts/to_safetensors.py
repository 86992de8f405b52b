#!/usr/bin/env python3
"""Converts weights that PyTorch saved (.pth, .pt, .bin, .ckpt) to safetensors, which dtrain reads.

    to_safetensors.py IN.pth OUT.safetensors [--key NAME] [--force]

Needs PyTorch (Debian: python3-torch), nothing else. The file is read with weights_only=True, so no
code in it runs. A checkpoint of a training program holds the weights under one of KEYS (--key
chooses another); prefixes that wrappers of modules leave in the names are removed. Whatever is not
a tensor of fp32, fp16, bf16, fp64 (saved as fp32) or int64 is omitted, and named."""

import argparse
import json
import os
import pickle
import re
import struct
import sys
import warnings

KEYS = ["state_dict", "model_state_dict", "model_state", "model", "net", "module"]
KEYS += ["state_dict_ema", "ema_state_dict", "model_ema", "ema"]
PREFIXES = ("module.", "model.", "_orig_mod.")


def fail(text):
    sys.exit(f"to_safetensors.py: {text}")


try:
    import torch
except ImportError:
    fail(f"{sys.executable} has no PyTorch; on Debian: apt-get install python3-torch, then /usr/bin/python3")

DTYPES = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.int64: "I64"}


def load(path):
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        fail(f"cannot read {path}: {error.strerror or error}")
    except TypeError:
        fail(f"PyTorch {torch.__version__} cannot load weights only; 1.13 or later can")
    except (RuntimeError, pickle.UnpicklingError, EOFError, ValueError, KeyError) as error:
        refuse(path, str(error))


def is_archive(path):
    with open(path, "rb") as f:
        return f.read(2) == b"PK"


def refuse(path, reason):
    # Newer versions add advice, such as to trust the file, in the same line and in others.
    reason = reason.rsplit("WeightsUnpickler error: ", 1)[-1].strip().partition("\n")[0]
    reason = reason.partition(" Please use ")[0].rstrip(".")
    if "Unsupported class" in reason or "Unsupported global" in reason:
        fail(
            f"{path} holds Python objects, such as a whole module, not only tensors ({reason}): "
            "where it was made, save model.state_dict()"
        )
    if "Unsupported operand" in reason and is_archive(path):  # 1.13 refuses numbers with a fraction
        fail(
            f"PyTorch {torch.__version__} cannot load only the weights of {path} ({reason}): use PyTorch 2 "
            "or later, or, where it was made, save model.state_dict() alone"
        )
    fail(f"{path} is not a file that torch.save wrote, or it is damaged ({reason})")


def unwrap(content, path, key):
    """The dictionary of tensors: the file itself, or what is under `key` or one of KEYS in it."""
    if not isinstance(content, dict):
        fail(f"{path} holds a {type(content).__name__}, not a dictionary of tensors: save model.state_dict()")
    found = [k for k in KEYS if isinstance(content.get(k), dict)]
    if key and not isinstance(content.get(key), dict):
        fail(f"{path} has no dictionary {key}; it has: {', '.join(map(str, content))}")
    if not key and not found:
        return content
    key = key or found[0]
    others = [str(k) for k in content if k != key]
    print(f"taken: {key}" + (f"; omitted: {', '.join(others)}" if others else ""))
    return unwrap(content[key], f"{path}: {key}", None)


def plain_name(name):
    while name.startswith(PREFIXES):
        name = name.split(".", 1)[1]
    # torchvision's published weights of DenseNet are older than its names: norm.1 is norm1 now.
    return re.sub(r"(\.denselayer\d+\.(norm|conv))\.([12]\.)", r"\1\3", name)


def convert(value):
    """The tensor as it is saved, or None."""
    if not isinstance(value, torch.Tensor) or value.layout != torch.strided or value.is_quantized:
        return None
    value = value.detach()
    value = value.float() if value.dtype == torch.float64 else value
    return value.contiguous() if value.dtype in DTYPES else None


def select(weights, path):
    tensors, dropped = {}, []
    for name, value in weights.items():
        tensor, plain = convert(value), plain_name(str(name))
        if tensor is None:
            dropped.append(f"{name} ({getattr(value, 'dtype', type(value).__name__)})")
        elif plain in tensors:
            fail(f"{path}: two tensors are called {plain} without {', '.join(PREFIXES)}; choose with --key")
        else:
            tensors[plain] = tensor
    if dropped:
        print(f"omitted, not tensors of weights: {', '.join(dropped)}")
    if not tensors:
        fail(f"{path} holds no tensors; it has: {', '.join(map(str, weights)) or 'nothing'}")
    return tensors


def raw_bytes(tensor):
    if tensor.dtype == torch.bfloat16:  # NumPy does not know it
        tensor = tensor.view(torch.int16)
    return tensor.numpy().tobytes()


def save(path, tensors):
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for name, tensor in tensors.items():
        end = offset + tensor.numel() * tensor.element_size()
        shape = list(tensor.shape)
        header[name] = {"dtype": DTYPES[tensor.dtype], "shape": shape, "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    part = f"{path}.{os.getpid()}.part"
    try:
        with open(part, "wb") as f:
            f.write(struct.pack("<Q", len(text)) + text)
            for tensor in tensors.values():
                f.write(raw_bytes(tensor))
        os.replace(part, path)
    except OSError as error:
        if os.path.exists(part):
            os.remove(part)
        fail(f"cannot write {path}: {error.strerror}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("input", metavar="IN.pth")
    parser.add_argument("output", metavar="OUT.safetensors")
    parser.add_argument("--key", help="take the weights under this key of the file")
    parser.add_argument("--force", action="store_true", help="replace OUT.safetensors if it exists")
    args = parser.parse_args()
    if os.path.exists(args.output) and not args.force:
        fail(f"{args.output} exists; --force replaces it")
    warnings.simplefilter("ignore")
    tensors = select(unwrap(load(args.input), args.input, args.key), args.input)
    save(args.output, tensors)
    print(f"{args.output}: {len(tensors)} tensors, {os.path.getsize(args.output) / 1e6:.1f} MB")


main()
