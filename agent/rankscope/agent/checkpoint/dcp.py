"""The manifest as torch.distributed.checkpoint's own metadata, so that ``dcp.load`` reads it too.

rankscope itself never reads that file: it is a pickle.
"""

import torch
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import (
    STORAGE_TYPES,
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorProperties,
    TensorStorageMetadata,
)

from rankscope.protocol.manifest import Manifest, Place


def metadata(manifest: Manifest) -> Metadata:
    state: dict[str, STORAGE_TYPES] = {}
    storage: dict[MetadataIndex, _StorageInfo] = {}
    for name, entry in manifest.tensors.items():
        chunks = []
        for index, chunk in enumerate(entry.chunks):
            offsets = torch.Size(chunk.offsets)
            chunks.append(ChunkStorageMetadata(offsets, torch.Size(chunk.lengths)))
            storage[MetadataIndex(name, offsets, index)] = info(chunk.place)
        properties = TensorProperties(dtype=getattr(torch, entry.dtype))
        state[name] = TensorStorageMetadata(properties, torch.Size(entry.shape), chunks)
    for name, place in manifest.objects.items():
        state[name] = BytesStorageMetadata()
        storage[MetadataIndex(name)] = info(place)
    return Metadata(
        state_dict_metadata=state,
        planner_data={name: tuple(path) for name, path in manifest.paths.items()},
        storage_data=storage,
        storage_meta=StorageMeta(),
    )


def info(place: Place) -> _StorageInfo:
    return _StorageInfo(place.file, place.at_bytes, place.length_bytes)
