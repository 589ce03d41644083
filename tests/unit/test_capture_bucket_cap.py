"""The bucket cap that DDP modules get from outside, whatever their script asks for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from stepscope.capture.bucket_cap import BucketCapOverride

MIB = 2**20


@pytest.fixture
def override(monkeypatch: pytest.MonkeyPatch) -> Iterator[BucketCapOverride]:
    monkeypatch.setattr(DistributedDataParallel, "__init__", DistributedDataParallel.__init__)
    store = dist.HashStore()  # type: ignore[attr-defined]
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    made = BucketCapOverride(2)
    made.install()
    yield made
    dist.destroy_process_group()


def cap_bytes(module: Any) -> Any:
    return module._get_ddp_logging_data()["bucket_cap_bytes"]


@pytest.mark.parametrize(
    ("asked", "replaced"),
    [
        ({}, []),
        ({"bucket_cap_mb": None}, []),
        ({"bucket_cap_mb": 8}, [8.0]),
        ({"bucket_cap_mb_list": [1, 16]}, [16.0]),
    ],
)
def test_every_module_gets_the_cap_and_what_it_asked_for_is_noted(
    override: BucketCapOverride, asked: dict[str, Any], replaced: list[float]
) -> None:
    module = DistributedDataParallel(nn.Linear(4, 4), **asked)
    assert cap_bytes(module) == 2 * MIB
    assert override.replaced == replaced


def test_a_cap_given_by_place_and_a_module_of_a_subclass_are_no_exception(
    override: BucketCapOverride,
) -> None:
    class Wrapped(DistributedDataParallel):
        def __init__(self, module: nn.Module) -> None:
            super().__init__(module, None, None, 0, True, True, None, 8)

    assert cap_bytes(Wrapped(nn.Linear(4, 4))) == 2 * MIB
    assert override.replaced == [8.0]


def test_a_call_that_ddp_refuses_is_refused_as_ddp_does(override: BucketCapOverride) -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'bucket_cap'"):
        DistributedDataParallel(nn.Linear(4, 4), bucket_cap=8)  # type: ignore[call-arg]
    assert override.replaced == []
