"""Which gradients share a bucket: as DDP itself has it, for models of twenty shapes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from stepscope.replay.assignment import FIRST_BUCKET_BYTES, Tensor, ready_order, registration_order

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

from stepscope.capture.modules import _ddp  # noqa: E402

WIDTH = 16
_c10d: Any = dist  # two names that torch.distributed has and its stubs do not export
CAPS = {"one bucket": 1 << 30, "several": 4 * 3 * WIDTH * WIDTH, "one a parameter": 1}


class Tied(nn.Module):
    """An embedding whose matrix is the head's too."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WIDTH, WIDTH)
        self.hidden = nn.Linear(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, WIDTH, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, x: Any) -> Any:
        return self.head(self.hidden(self.embedding(x.abs().long() % WIDTH).mean(1)))


class OtherWayRound(nn.Module):
    """Layers registered last to first."""

    def __init__(self) -> None:
        super().__init__()
        self.last, self.middle, self.first = (nn.Linear(WIDTH, WIDTH) for _ in range(3))

    def forward(self, x: Any) -> Any:
        return self.last(self.middle(self.first(x)))


class UsedTwice(nn.Module):
    """A layer at both ends of the network."""

    def __init__(self) -> None:
        super().__init__()
        self.both, self.middle = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Any) -> Any:
        return self.both(self.middle(self.both(x)))


class Sparse(nn.Module):
    """An embedding with a sparse gradient before a dense layer."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(WIDTH, WIDTH, sparse=True), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Any) -> Any:
        return self.head(self.embedding(x.abs().long() % WIDTH).mean(1))


class Mixed(nn.Module):
    """Layers of several types in turn."""

    def __init__(self, *types: Any) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH, dtype=kind) for kind in types)

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x.to(layer.weight.dtype))
        return x


class Scalars(nn.Module):
    """Parameters of one element between matrices."""

    def __init__(self) -> None:
        super().__init__()
        self.scales = nn.ParameterList(nn.Parameter(torch.ones(())) for _ in range(4))
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x: Any) -> Any:
        for scale, layer in zip(self.scales, self.layers, strict=True):
            x = scale * layer(x)
        return x


class Unused(nn.Module):
    """A layer that forward leaves out."""

    def __init__(self) -> None:
        super().__init__()
        self.used, self.unused, self.head = (nn.Linear(WIDTH, WIDTH) for _ in range(3))

    def forward(self, x: Any) -> Any:
        return self.head(self.used(x))


def mlp(layers: int = 6) -> nn.Module:
    return nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(layers)))


def frozen(*places: int) -> nn.Module:
    made = mlp()
    for place in places:
        made[place].requires_grad_(False)  # type: ignore[index]  # a Sequential
    return made


def huge() -> nn.Module:
    return nn.Sequential(
        nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 600), nn.Linear(600, 600), nn.Linear(600, WIDTH)
    )


F32, F64, BF16 = torch.float32, torch.float64, torch.bfloat16
MODELS: dict[str, tuple[Callable[[], nn.Module], dict[str, Any]]] = {
    "layers in order": (mlp, {}),
    "one parameter": (lambda: nn.Linear(WIDTH, WIDTH, bias=False), {}),
    "tied weights": (Tied, {}),
    "registered the other way round": (OtherWayRound, {}),
    "a layer used twice": (UsedTwice, {}),
    "first layer frozen": (lambda: frozen(0), {}),
    "last layer frozen": (lambda: frozen(5), {}),
    "every other layer frozen": (lambda: frozen(1, 3), {}),
    "two types in turn": (lambda: Mixed(F32, F64, F32, F64, F32), {}),
    "three types": (lambda: Mixed(F32, BF16, F64, F32, BF16), {}),
    "another type at the end": (lambda: Mixed(F32, F32, F32, F64), {}),
    "half precision": (lambda: Mixed(BF16, BF16, BF16), {}),
    "one huge parameter": (huge, {}),
    "empty modules between": (lambda: nn.Sequential(nn.Identity(), mlp(3), nn.Identity(), mlp(2)), {}),
    "norms": (lambda: nn.Sequential(mlp(2), nn.LayerNorm(WIDTH), mlp(2), nn.LayerNorm(WIDTH)), {}),
    "parameters of one element": (Scalars, {}),
    "a sparse gradient": (Sparse, {}),
    "views into the buckets": (mlp, {"gradient_as_bucket_view": True}),
    "a static graph": (UsedTwice, {"static_graph": True}),
    "unused parameters searched for": (Unused, {"find_unused_parameters": True}),
    "attention": (lambda: nn.TransformerEncoderLayer(WIDTH, 2, 2 * WIDTH, dropout=0.0), {}),
}


@pytest.fixture(scope="module")
def process_group() -> Iterator[None]:
    store = dist.HashStore()  # type: ignore[attr-defined]  # torch documents it, its stubs do not list it
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def reduced(model: nn.Module, cap: int | None, options: dict[str, Any]) -> tuple[list[list[int]], Any]:
    """The parameter indices of each bucket that DDP reduced in the third step, in launch order; and what capture has of it."""
    torch.manual_seed(0)
    wrapped = DistributedDataParallel(model, bucket_cap_mb=None if cap is None else cap / 2**20, **options)
    index = {id(p): k for k, p in enumerate(p for p in model.parameters() if p.requires_grad)}
    launched: list[list[int]] = []

    def note(_, bucket):  # type: ignore[no-untyped-def]  # DDP takes its own annotations only
        launched.append([index[id(parameter)] for parameter in bucket.parameters()])
        done = torch.futures.Future()
        done.set_result(bucket.buffer())
        return done

    if not isinstance(model, Sparse):  # DDP takes no hook there
        wrapped.register_comm_hook(None, note)
    for _ in range(3):
        launched.clear()
        wrapped(torch.randn(4, WIDTH)).float().sum().backward()
    return launched, _ddp(wrapped)


def tensors(model: nn.Module, order: list[int]) -> list[Tensor]:
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    sparse = [id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding) and m.sparse]
    return [
        Tensor(
            parameters[k].numel() * parameters[k].element_size(),
            parameters[k].dtype,
            id(parameters[k]) in sparse,
        )
        for k in order
    ]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("size", CAPS)
def test_buckets_are_those_that_ddp_reduces(name: str, size: str, process_group: None) -> None:
    make, options = MODELS[name]
    model = make()
    launched, about = reduced(model, CAPS[size], options)
    ready = [parameter.index for parameter in about.parameters]
    rebuilds = not about.find_unused_parameters
    order, rule = (ready, ready_order) if rebuilds else (sorted(ready), registration_order)
    expected = [[order[k] for k in bucket] for bucket in rule(tensors(model, order), [CAPS[size]])]
    assert about.bucket_caps_bytes == [CAPS[size]]
    assert about.in_ready_order == rebuilds  # an unused parameter is in no order of arrival
    assert about.rebuilt == (
        rebuilds and not about.static_graph
    )  # a static graph's are rebuilt, and not logged
    if about.rebuilt:
        assert about.rebuilt_bucket_parameters == expected
    if not isinstance(model, Sparse):
        assert launched == expected


def test_the_first_bucket_is_smaller_where_the_script_names_no_cap(process_group: None) -> None:
    """1 MiB, then 25: a model of 2.9 MiB is cut once, after 1 MiB and a bit."""
    assert FIRST_BUCKET_BYTES == _c10d._DEFAULT_FIRST_BUCKET_BYTES
    shapes = [(WIDTH, 6000), (6000, WIDTH)] * 4
    model = nn.Sequential(*(nn.Linear(*shape, bias=False) for shape in shapes))
    launched, about = reduced(model, None, {})
    ready = [parameter.index for parameter in about.parameters]
    assert about.bucket_caps_bytes == [FIRST_BUCKET_BYTES, 25 << 20]
    expected = ready_order(tensors(model, ready), about.bucket_caps_bytes)
    assert launched == [[ready[k] for k in bucket] for bucket in expected]
    assert len(launched) == 2


@pytest.mark.parametrize("name", MODELS)
def test_the_rule_is_that_of_torchs_own_function(name: str) -> None:
    """In both orders, for caps that close buckets at the first parameter, in between, and never; and with a first cap."""
    model = MODELS[name][0]()
    parameters: list[Any] = [parameter for parameter in model.parameters() if parameter.requires_grad]
    order = list(range(len(parameters)))
    plain = tensors(model, order)
    sparse = [tensor.sparse for tensor in plain]
    for caps in ([1], [1000], [100, 4000], [1 << 30]):
        as_ready, _ = _c10d._compute_bucket_assignment_by_size(parameters, caps, sparse, order)
        as_registered, _ = _c10d._compute_bucket_assignment_by_size(parameters, caps, sparse)
        assert ready_order(plain, caps) == as_ready
        assert registration_order(plain, caps) == as_registered[::-1]
