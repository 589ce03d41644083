"""A decoder-only GPT: token and position embeddings, pre-norm blocks, causal attention, GELU MLP, a final head."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint


@dataclass(frozen=True)
class GPTConfig:
    """The sizes of a model.

    ``block_size`` is the context length in tokens. With ``tie_weights`` the head shares the token embedding's matrix.
    With ``activation_checkpointing`` a block keeps only its input and recomputes the rest in backward.
    """

    layers: int = 6
    heads: int = 6
    embed: int = 384
    block_size: int = 64
    vocab_size: int = 256
    dropout: float = 0.0
    tie_weights: bool = True
    activation_checkpointing: bool = False

    def __post_init__(self) -> None:
        if min(self.layers, self.heads, self.embed, self.block_size, self.vocab_size) < 1:
            raise ValueError("layers, heads, embed, block size and vocabulary size must all be at least 1")
        if self.embed % self.heads:
            raise ValueError(f"embed ({self.embed}) must be a multiple of heads ({self.heads})")


PRESETS = {
    "1m": GPTConfig(layers=4, heads=4, embed=144),
    "3m": GPTConfig(layers=4, heads=4, embed=256),
    "10m": GPTConfig(),
    "30m": GPTConfig(layers=10, heads=8, embed=512, block_size=128),
    "124m": GPTConfig(layers=12, heads=12, embed=768, block_size=1024, vocab_size=50257),  # GPT-2 small
}


class CausalSelfAttention(nn.Module):
    """Multi-head attention in which a position sees itself and what is before it."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.dropout = config.dropout
        self.qkv = nn.Linear(config.embed, 3 * config.embed)
        self.proj = nn.Linear(config.embed, config.embed)

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, time, embed) to the same shape."""
        batch, time, embed = x.shape
        qkv = self.qkv(x).view(batch, time, 3, self.heads, embed // self.heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4)  # each (batch, heads, time, embed / heads)
        dropout = self.dropout if self.training else 0.0
        y = functional.scaled_dot_product_attention(query, key, value, dropout_p=dropout, is_causal=True)
        return self.proj(y.transpose(1, 2).reshape(batch, time, embed))  # type: ignore[no-any-return]  # Module.__call__ is untyped


class MLP(nn.Module):
    """Two linear layers, four times as wide in between."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.up = nn.Linear(config.embed, 4 * config.embed)
        self.proj = nn.Linear(4 * config.embed, config.embed)

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, time, embed) to the same shape."""
        return self.proj(functional.gelu(self.up(x)))  # type: ignore[no-any-return]  # Module.__call__ is untyped


class Block(nn.Module):
    """Attention, then the MLP, each normalised first and added to the residual stream."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.activation_checkpointing = config.activation_checkpointing
        self.attention_norm = nn.LayerNorm(config.embed)
        self.attention = CausalSelfAttention(config)
        self.mlp_norm = nn.LayerNorm(config.embed)
        self.mlp = MLP(config)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, time, embed) to the same shape."""
        if self.activation_checkpointing and self.training:
            # Inside the block, so that whatever wraps the block (FSDP gathers its weights there) runs once, not twice.
            return checkpoint(self._residual, x, use_reentrant=False)  # type: ignore[no-any-return]  # untyped in torch
        return self._residual(x)

    def _residual(self, x: Tensor) -> Tensor:
        x = x + self.dropout(self.attention(self.attention_norm(x)))
        return x + self.dropout(self.mlp(self.mlp_norm(x)))  # type: ignore[no-any-return]  # Module.__call__ is untyped


class GPT(nn.Module):
    """The whole model; ``blocks`` holds the transformer blocks in order."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.config = config
        self.token_embedding = nn.Embedding(config.vocab_size, config.embed)
        self.position_embedding = nn.Embedding(config.block_size, config.embed)
        self.dropout = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.embed)
        self.head = nn.Linear(config.embed, config.vocab_size, bias=False)
        self.apply(_initialise)
        for block in self.blocks:
            _shrink_residual_projections(block, config.layers)
        if config.tie_weights:
            self.head.weight = self.token_embedding.weight

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """Return the mean cross-entropy in nats, a scalar; tokens and targets are (batch, time) with time <= block_size."""
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.dropout(self.token_embedding(tokens) + self.position_embedding(positions))
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        # The sum over the vocabulary needs float32 even where the matrices are bfloat16.
        return functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def parameter_count(model: nn.Module) -> int:
    """Count the trainable numbers, a shared matrix once."""
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


def _initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)


def _shrink_residual_projections(block: nn.Module, layers: int) -> None:
    """Scale the layers that write to the residual stream, which sums two of them a block (GPT-2, section 2.3)."""
    for name, parameter in block.named_parameters():
        if name.endswith("proj.weight"):
            nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * layers))
