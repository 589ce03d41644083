"""The environment variables that can change how communication overlaps with compute: these are kept with a run, no others."""

from __future__ import annotations

from collections.abc import Mapping

PREFIXES = ("NCCL_", "RCCL_", "TORCH_NCCL_", "GLOO_", "TORCH_FR_", "HSA_", "MSCCL", "UCX_", "FI_")
"""Families of settings of the communication libraries and of the runtimes below them."""

NAMES = (
    "AMD_SERIALIZE_COPY",
    "AMD_SERIALIZE_KERNEL",
    "CUDA_DEVICE_MAX_CONNECTIONS",
    "CUDA_DEVICE_ORDER",
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_MODULE_LOADING",
    "CUDA_VISIBLE_DEVICES",
    "GPU_MAX_HW_QUEUES",
    "HIP_LAUNCH_BLOCKING",
    "HIP_VISIBLE_DEVICES",
    "KMP_AFFINITY",
    "MKL_NUM_THREADS",
    "OMP_NUM_THREADS",
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_NO_CUDA_MEMORY_CACHING",
    "ROCR_VISIBLE_DEVICES",
    "TORCHINDUCTOR_REORDER_FOR_COMPUTE_COMM_OVERLAP",
    "TORCH_CUDNN_V8_API_DISABLED",
    "TORCH_DISTRIBUTED_DEBUG",
    "TORCH_SHOW_DISPATCH_TRACE",
)


def overlap_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables of `environment` that are in the lists above, by name in order."""
    return {
        name: environment[name] for name in sorted(environment) if name in NAMES or name.startswith(PREFIXES)
    }
