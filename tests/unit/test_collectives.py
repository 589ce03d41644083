"""The table of communication: a test a row, and the look-alikes that are none."""

from __future__ import annotations

import re

import pytest

from stepscope.trace import collectives

NAMED = {
    "ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*, unsigned long, ncclWork*)": "all_reduce",
    "ncclKernel_AllReduce_TREE_LL_Sum_half(ncclWorkElem)": "all_reduce",
    "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclWorkElem)": "send_recv",
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)": "all_reduce",
    "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)": "reduce_scatter",
    "ncclDevKernel_AllGather_RING_LL(ncclDevComm*, unsigned long, ncclWork*)": "all_gather",
    "ncclDevKernel_Broadcast_RING_LL(ncclDevComm*, unsigned long, ncclWork*)": "broadcast",
    "ncclDevKernel_Reduce_Sum_f32_RING_LL(ncclDevComm*, unsigned long, ncclWork*)": "reduce",
    "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)": "send_recv",
    "ncclSymDevKernel_AllReduce_RSxLD_AGxST_sum_f32(ncclSymDevArgs)": "all_reduce",
    "ncclSymkDevKernel_AllGather_ST(ncclSymkDevWorkArgs4K)": "all_gather",
    "ncclAllReduceRingLLKernel_sum_f32(ncclColl)": "all_reduce",
    "ncclReduceScatterRingLLKernel_sum_f16(ncclColl)": "reduce_scatter",
    "ncclDevKernel_Generic(ncclDevComm*, channelMasks, ncclWork*)": "unknown",
    "ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)": "unknown",
    "mscclKernel_Sum_float_Simple(ncclDevComm*, mscclAlgo*, mscclWork*)": "unknown",
    "void mscclpp::allreduceKernel<float>(float*)": "unknown",
    "void (anonymous namespace)::multimem_one_shot_all_reduce_kernel<c10::BFloat16, 16>(x)": "all_reduce",
    "void multimem_all_gather_kernel<16>(char*, char*, unsigned long)": "all_gather",
    "void c10d::symmetric_memory::two_shot_all_reduce_kernel_inplace<float, 16, 8>(x)": "all_reduce",
    "void c10d::symmetric_memory::one_shot_all_reduce_kernel<float, 16, 8>(x)": "all_reduce",
    "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*)": "all_reduce",
    "void sglang::cross_device_reduce_2stage<half, 4>(sglang::RankData*)": "all_reduce",
    "void quickreduce::allreduce_prototype_twoshot<x>(half const*)": "all_reduce",
    "nvshmemi_alltoall_threadgroup(x)": "all_to_all",
    "nvshmemi_proxy_quiet_entrypoint()": "unknown",
    "void deep_ep::internode_ll::dispatch<true, 7168>(void*)": "all_to_all",
    "void deep_ep::intranode::combine<__nv_bfloat16, 8>(x)": "all_to_all",
    "void deep_ep::intranode::barrier<8>(int**, int)": "barrier",
    "void deep_ep::internode::notify_dispatch<false, 4>(x)": "all_to_all",
    "oneccl_barrier_kernel(x)": "unknown",
    "oneccl_allreduce_ring(x)": "all_reduce",
}

LOOK_ALIKES = [
    "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cutlass::gemm::collective::CollectiveMma<x>>>(x)",
    "void flash::flash_fwd_kernel<cute::BroadcastSync, cutlass::arch::NamedBarrier>(Flash_fwd_params)",
    "void at::native::batch_norm_collect_statistics_kernel<float, float>(x)",
    "void at::native::(anonymous namespace)::batch_norm_backward_reduce_kernel<SyncBatchNorm>(x)",
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>(x)",
    "void deep_ep::layout::get_dispatch_layout<256, 4>(long const*)",
    "triton_red_fused_broadcast_all_reduce_0",
    "Broadcast_kernel(x)",
    "void one_shot_attention_kernel<ncclKernel_AllReduce>(x)",
    "ncclx::version(int)",
]


@pytest.mark.parametrize(("kernel", "kind"), NAMED.items())
def test_a_communication_kernel_is_known_by_its_function_name(kernel: str, kind: str) -> None:
    found = collectives.match_kernel(kernel)
    assert found is not None
    assert found.kind == kind


@pytest.mark.parametrize("kernel", LOOK_ALIKES)
def test_words_in_template_arguments_make_no_collective(kernel: str) -> None:
    assert collectives.match_kernel(kernel) is None


def test_every_row_of_the_table_is_met_by_a_test() -> None:
    met = {
        next(
            row
            for row in collectives.KERNELS
            if _row_pattern(row).fullmatch(collectives.function_name(kernel))
        )
        for kernel in NAMED
    }
    assert met == set(collectives.KERNELS)


def _row_pattern(row: collectives.KernelRow) -> re.Pattern[str]:
    return next(pattern for known, pattern in collectives._COMPILED if known == row)


@pytest.mark.parametrize(
    ("operator", "kind"),
    {
        "c10d::allreduce_": "all_reduce",
        "c10d::allreduce_coalesced_": "all_reduce",
        "c10d::_allgather_base_": "all_gather",
        "c10d::allgather_into_tensor_coalesced_": "all_gather",
        "c10d::_reduce_scatter_base_": "reduce_scatter",
        "c10d::reduce_scatter_tensor_coalesced_": "reduce_scatter",
        "c10d::alltoall_base_": "all_to_all",
        "c10d::broadcast_": "broadcast",
        "c10d::reduce_": "reduce",
        "c10d::gather_": "gather",
        "c10d::scatter_": "scatter",
        "c10d::barrier": "barrier",
        "c10d::monitored_barrier_": "barrier",
        "c10d::recv_any_source_": "send_recv",
        "nccl:all_to_all": "all_to_all",
        "nccl:_all_gather_base": "all_gather",
        "nccl:send 0->1": "send_recv",
        "gloo:all_reduce": "all_reduce",
        "_c10d_functional::all_gather_into_tensor": "all_gather",
        "record_param_comms": "unknown",
        "nccl:coalesced": "unknown",
        "_c10d_functional::wait_tensor": None,
        "aten::mm": None,
        "torch/cuda/nccl.py(36): version": None,
        "DistributedDataParallel.forward": None,
    }.items(),
)
def test_an_operator_tells_its_kind(operator: str, kind: str | None) -> None:
    assert collectives.operator_kind(operator) == kind


@pytest.mark.parametrize(
    ("spelling", "name", "size"),
    [
        ("Float", "float32", 4),
        ("float", "float32", 4),
        ("c10::BFloat16", "bfloat16", 2),
        ("BFloat16", "bfloat16", 2),
        ("c10::Half", "float16", 2),
        ("double", "float64", 8),
        ("long int", "int64", 8),
        ("Int", "int32", 4),
        ("unsigned char", "uint8", 1),
        ("Float8_e4m3fn", "float8_e4m3fn", 1),
    ],
)
def test_a_type_is_known_by_any_spelling(spelling: str, name: str, size: int) -> None:
    found = collectives.dtype_of(spelling)
    assert found is not None
    assert (found.name, found.size, found.floating) == (name, size, "float" in name)


def test_an_unknown_type_is_none_and_never_guessed() -> None:
    assert collectives.dtype_of("QuantizedThing") is None
    assert collectives.dtype_of(None) is None


def test_nccl_writes_the_type_into_a_reductions_name() -> None:
    legacy = collectives.kernel_dtype("ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)")
    current = collectives.kernel_dtype("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(x)")
    assert legacy is not None
    assert current is not None
    assert (legacy.name, current.name) == ("float32", "bfloat16")
