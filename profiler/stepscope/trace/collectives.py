"""The one table of what is communication: kernel names, launching operators, gloo spans, and what they move.

A kernel is a collective when its function name is in `KERNELS`, when its args carry `Collective name`, or when it was
launched under a communication operator (`stepscope.trace.launches`). Only the *function's own name* is matched, never
words inside its template arguments: CUTLASS, FlashAttention and BatchNorm kernels carry "Collective", "Broadcast" and
"Sync" in theirs and move nothing. Sources: the kernels' names in NCCL, RCCL, MSCCL, PyTorch (symm_mem), vLLM, NVSHMEM,
DeepEP and oneCCL, and the traces they leave.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

UNKNOWN = "unknown"

REDUCES = frozenset({"all_reduce", "reduce_scatter", "reduce"})
"""The kinds that can carry gradients (METRICS: gradient collective); ZeRO may reduce to the rank that owns a part."""

SYNCHRONISING = frozenset({"all_reduce", "reduce_scatter", "all_gather", "all_to_all", "barrier"})
"""The kinds that cannot move data before the last rank arrives."""


@dataclass(frozen=True, slots=True)
class KernelRow:
    """One family of communication kernels.

    name: regular expression on the function name with its namespaces and without return type, template arguments and
    parameters; kind: what it does, or None where the name tells (group `kind`) or does not (RCCL's generic kernel).
    """

    library: str
    name: str
    kind: str | None = None


KERNELS: tuple[KernelRow, ...] = (
    KernelRow("NCCL, RCCL", r"nccl(Sym\w*?)?(Dev)?Kernel(_(?P<kind>[A-Za-z]+?)(_.*|\d.*)?|\w*)"),
    KernelRow("NCCL before 2.8", r"nccl(?P<kind>[A-Z]\w*?)(Ring|Tree|CollNet)\w*Kernel\w*"),
    KernelRow("MSCCL", r"mscclKernel\w*"),
    KernelRow("MSCCL++", r"mscclpp::.*"),
    KernelRow(
        "PyTorch symmetric memory", r"(.*::)?multimem_(one_shot_|two_shot_)?(?P<kind>[a-z_]+?)(_kernel\w*)?"
    ),
    KernelRow(
        "PyTorch symmetric memory",
        r"(.*::)?(one|two)_shot_(?P<kind>all_reduce|reduce_scatter|all_to_all|all_gather)\w*",
    ),
    KernelRow("vLLM, SGLang", r"(.*::)?cross_device_reduce\w*", "all_reduce"),
    KernelRow("vLLM quick reduce", r"(.*::)?allreduce_prototype_(one|two)shot\w*", "all_reduce"),
    KernelRow("NVSHMEM", r"(.*::)?nvshmem\w*?_(?P<kind>alltoall|broadcast|fcollect|reduce|barrier)\w*"),
    KernelRow("NVSHMEM", r"(.*::)?nvshmem\w*"),
    KernelRow(
        "DeepEP",
        r"deep_ep::(intranode|internode|internode_ll)::(cached_notify_)?(dispatch|combine)\w*",
        "all_to_all",
    ),
    KernelRow("DeepEP", r"deep_ep::(intranode|internode|internode_ll)::(cached_)?notify\w*", "all_to_all"),
    KernelRow("DeepEP", r"deep_ep::(intranode|internode|internode_ll)::barrier\w*", "barrier"),
    KernelRow(
        "oneCCL",
        r"(oneccl|ccl)(::|_)(.*(::|_))?(?P<kind>allreduce|reduce_scatter|allgatherv?|alltoallv?|broadcast|bcast)\w*",
    ),
    KernelRow("oneCCL", r"oneccl\w*.*"),
)

_KINDS = {
    "allreduce": "all_reduce",
    "reducescatter": "reduce_scatter",
    "allgather": "all_gather",
    "allgatherv": "all_gather",
    "fcollect": "all_gather",
    "broadcast": "broadcast",
    "bcast": "broadcast",
    "reduce": "reduce",
    "alltoall": "all_to_all",
    "alltoallv": "all_to_all",
    "sendrecv": "send_recv",
    "send": "send_recv",
    "recv": "send_recv",
    "recvanysource": "send_recv",
    "barrier": "barrier",
    "monitoredbarrier": "barrier",
    "gather": "gather",
    "scatter": "scatter",
}

_DECORATION = re.compile(r"(intotensor|tensor|coalesced|base|single|oop|sparse|uneven)+")
_COMPILED = tuple((row, re.compile(row.name)) for row in KERNELS)
_ANONYMOUS = "(anonymous namespace)::"
_RETURN_TYPE = re.compile(r"^(?:static |inline )*(?:void|int|float|bool) ")


def kind_of(word: str | None) -> str:
    """The kind behind any spelling: "AllReduce", "allreduce_", "_allgather_base_", "all_to_allv", "SendRecv"."""
    if not word:
        return UNKNOWN
    plain = re.sub(r"[^a-z]", "", word.lower())
    return _KINDS.get(plain) or _KINDS.get(_DECORATION.sub("", plain)) or UNKNOWN


def function_name(kernel: str) -> str:
    """A kernel's function name with namespaces, without return type, template arguments and parameters."""
    name = _RETURN_TYPE.sub("", kernel.replace(_ANONYMOUS, "").strip())
    return re.split(r"[<(\[]", name, maxsplit=1)[0].strip()


@dataclass(frozen=True, slots=True)
class KernelMatch:
    """What the table knows of a kernel: its library, and its kind ("unknown" where the name does not tell)."""

    library: str
    kind: str


def match_kernel(kernel: str) -> KernelMatch | None:
    """The row of the table that a kernel's name belongs to, or None if it names no collective."""
    name = function_name(kernel)
    for row, pattern in _COMPILED:
        found = pattern.fullmatch(name)
        if found:
            return KernelMatch(row.library, row.kind or kind_of(found.groupdict().get("kind")))
    return None


_OPERATOR = re.compile(
    r"(?:c10d|_c10d_functional|_c10d_functional_autograd|nccl|rccl|gloo|mpi|ucc|xccl|hccl)::?(\w+)(?: .*)?"
)
_NO_TRANSFER = frozenset({"wait_tensor", "wait", "check_for_nan"})

PARAM_COMMS = "record_param_comms"


def operator_kind(operator: str) -> str | None:
    """The kind behind a communication operator's or annotation's name (`c10d::allreduce_`, `nccl:all_to_all`).

    None where the name is no communication; "unknown" where it is but does not say which (`record_param_comms`).
    """
    if operator == PARAM_COMMS:
        return UNKNOWN
    found = _OPERATOR.fullmatch(operator)
    if found is None or found.group(1) in _NO_TRANSFER:
        return None
    return kind_of(found.group(1))


def is_gloo_span(name: str) -> bool:
    """Whether an annotation is a gloo worker's execution of a collective."""
    return name.startswith("gloo:")


_DTYPES: dict[str, tuple[str, int]] = {
    "float": ("float32", 4),
    "f32": ("float32", 4),
    "float32": ("float32", 4),
    "double": ("float64", 8),
    "f64": ("float64", 8),
    "half": ("float16", 2),
    "f16": ("float16", 2),
    "float16": ("float16", 2),
    "bfloat16": ("bfloat16", 2),
    "bf16": ("bfloat16", 2),
    "float8e4m3fn": ("float8_e4m3fn", 1),
    "float8e5m2": ("float8_e5m2", 1),
    "f8e4m3": ("float8_e4m3", 1),
    "f8e5m2": ("float8_e5m2", 1),
    "byte": ("uint8", 1),
    "unsignedchar": ("uint8", 1),
    "u8": ("uint8", 1),
    "char": ("int8", 1),
    "signedchar": ("int8", 1),
    "i8": ("int8", 1),
    "bool": ("bool", 1),
    "short": ("int16", 2),
    "int": ("int32", 4),
    "i32": ("int32", 4),
    "u32": ("uint32", 4),
    "long": ("int64", 8),
    "longint": ("int64", 8),
    "i64": ("int64", 8),
    "u64": ("uint64", 8),
}


@dataclass(frozen=True, slots=True)
class Dtype:
    """A data type by torch's name, and its size in bytes."""

    name: str
    size: int

    @property
    def floating(self) -> bool:
        """Whether it can hold gradients."""
        return "float" in self.name


def dtype_of(spelling: str | None) -> Dtype | None:
    """The type behind any spelling ("Float", "c10::BFloat16", "long int", "f32"); None where it is not known."""
    if not spelling:
        return None
    known = _DTYPES.get(re.sub(r"[^a-z0-9]", "", spelling.lower().replace("c10::", "")))
    return Dtype(*known) if known else None


_KERNEL_DTYPE = re.compile(
    r"_(?:Sum|Prod|Min|Max|MinMax|PreMulSum|SumPostDiv)_([A-Za-z0-9]+?)(?:_t)?(?:_|\(|$)"
)


def kernel_dtype(kernel: str) -> Dtype | None:
    """The type in an NCCL reduction kernel's name (`..._Sum_float(...)`, `..._Sum_f32_RING_LL(...)`)."""
    found = _KERNEL_DTYPE.search(kernel)
    return dtype_of(found.group(1)) if found else None
