"""safetensors as NumPy arrays: an independent reader and writer for the tests."""

import json

import numpy as np

DTYPES = {"F32": np.dtype("<f4"), "F16": np.dtype("<f2"), "I64": np.dtype("<i8")}


def load(path):
    with open(path, "rb") as f:
        blob = f.read()
    n = int.from_bytes(blob[:8], "little")
    header = json.loads(blob[8 : 8 + n])
    assert header.pop("__metadata__", {}).get("format") == "pt", path
    data, out, end = memoryview(blob)[8 + n :], {}, 0
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        begin, stop = entry["data_offsets"]
        assert begin == end, f"{path}: hole before {name}"
        end = stop
        out[name] = np.frombuffer(data[begin:stop], DTYPES[entry["dtype"]]).reshape(entry["shape"])
    assert end == len(data), f"{path}: trailing bytes"
    return out


def save(path, tensors):
    header, blobs, offset = {"__metadata__": {"format": "pt"}}, [], 0
    names = {v: k for k, v in DTYPES.items()}
    for name, value in tensors.items():
        blob = np.ascontiguousarray(value).data
        header[name] = {
            "dtype": names[value.dtype],
            "shape": list(value.shape),
            "data_offsets": [offset, offset + blob.nbytes],
        }
        offset += blob.nbytes
        blobs.append(blob)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text)
        f.writelines(blobs)
