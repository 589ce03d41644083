"""The parts of the training workload that need no second rank: text, model, flags."""

from __future__ import annotations

import re

import pytest
import torch

from stepscope_workloads import corpus
from stepscope_workloads.flags import parse_flags
from stepscope_workloads.gpt import GPT, PRESETS, GPTConfig, parameter_count

TINY = GPTConfig(layers=2, heads=2, embed=16, block_size=8, vocab_size=128)


def test_the_text_is_the_same_each_time_and_made_of_sentences() -> None:
    assert corpus.text(50, seed=3) == corpus.text(50, seed=3) != corpus.text(50, seed=4)
    assert corpus.text(50).count("\n") == 49
    assert all(re.fullmatch(r"[A-Za-z, ]+\.", line) for line in corpus.text(50).splitlines())
    assert not re.search(r"[A-Z]{2}", corpus.text()), "a symbol of the grammar was left unexpanded"


def test_tokens_are_the_bytes_of_the_text_and_longer_than_any_context() -> None:
    tokens = corpus.tokens()
    assert bytes(tokens.tolist()).decode("ascii") == corpus.text()
    assert int(tokens.max()) < corpus.ASCII_SIZE
    assert len(tokens) > 4 * corpus.LONGEST_BLOCK


@pytest.mark.parametrize(
    ("preset", "count"),
    [("1m", 1_049_184), ("3m", 3_241_472), ("10m", 10_770_432), ("30m", 31_721_472), ("124m", 124_439_808)],
)
def test_a_preset_has_the_parameters_its_name_says(preset: str, count: int) -> None:
    with torch.device("meta"):
        assert parameter_count(GPT(PRESETS[preset])) == count


def test_untying_the_head_adds_one_matrix() -> None:
    untied = GPTConfig(layers=2, heads=2, embed=16, block_size=8, vocab_size=128, tie_weights=False)
    assert parameter_count(GPT(untied)) - parameter_count(GPT(TINY)) == 128 * 16


def test_a_position_sees_nothing_after_it() -> None:
    torch.manual_seed(0)
    model = GPT(TINY)
    logits: list[torch.Tensor] = []
    model.head.register_forward_hook(lambda *call: logits.append(call[-1]))
    tokens = torch.randint(128, (1, 8))
    changed = tokens.clone()
    changed[0, 5] = (changed[0, 5] + 1) % 128
    model(tokens, tokens)
    model(changed, tokens)
    difference = (logits[0] - logits[1]).abs().amax(dim=-1)[0]
    assert difference[:5].max() == 0
    assert difference[5:].min() > 0


def test_an_untrained_model_gives_every_token_about_the_same_chance() -> None:
    torch.manual_seed(0)
    tokens = torch.randint(128, (16, 8))
    assert GPT(TINY)(tokens, tokens.roll(1)).item() == pytest.approx(4.852, abs=0.05)  # ln 128


def test_sizes_that_are_given_replace_those_of_the_preset() -> None:
    flags = (
        "--preset 124m --layers 2 --block-size 32 --dropout 0.1 --no-tie-weights --activation-checkpointing"
    )
    config = parse_flags(flags.split()).config
    assert config == GPTConfig(
        layers=2,
        heads=12,
        embed=768,
        block_size=32,
        vocab_size=50257,
        dropout=0.1,
        tie_weights=False,
        activation_checkpointing=True,
    )


def test_only_ddp_uses_autocast_because_fsdp_casts_the_weights() -> None:
    stages = {zero: parse_flags(["--dtype", "bfloat16", "--zero", str(zero)]).autocast for zero in range(4)}
    assert stages == {0: True, 1: True, 2: False, 3: False}


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        (
            "--zero 3 --bucket-cap-mb 8",
            "--bucket-cap-mb is DDP's and --zero 3 is FSDP2: leave it out, or use --zero 0 or 1",
        ),
        (
            "--zero 2 --gradient-as-bucket-view",
            "--gradient-as-bucket-view is DDP's and --zero 2 is FSDP2: leave it out, or use --zero 0 or 1",
        ),
        (
            "--static-graph --find-unused-parameters",
            "--static-graph finds unused parameters by itself: leave --find-unused-parameters out",
        ),
        (
            "--static-graph --accumulate 2",
            "--static-graph fails in torch's no_sync, which --accumulate needs: leave one of them out",
        ),
        ("--embed 100 --heads 3", "embed (100) must be a multiple of heads (3)"),
        ("--vocab-size 64", "--vocab-size must be at least 128, because the text is ASCII bytes"),
        ("--block-size 100000", "--block-size must be at most 65536, because the text is short"),
        ("--steps 0", "argument --steps: must be at least 1, got 0"),
        ("--steps many", "argument --steps: invalid positive_int value: 'many'"),
        ("--bucket-cap-mb -1", "argument --bucket-cap-mb: must be above 0, got -1.0"),
        ("--lr nan", "argument --lr: must be above 0, got nan"),
        ("--dropout 1", "argument --dropout: must be from 0 to below 1, got 1.0"),
    ],
)
def test_a_mistake_in_the_flags_ends_with_one_line_that_names_the_fix(
    flags: str, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        parse_flags(flags.split())
    assert stop.value.code == 2
    assert capsys.readouterr().err.splitlines()[-1].endswith(f"error: {line}")


def test_nccl_without_a_gpu_names_the_backend_to_use(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit):
        parse_flags(["--backend", "nccl"])
    assert (
        capsys.readouterr()
        .err.splitlines()[-1]
        .endswith("error: --backend nccl needs a GPU and none is visible: use --backend gloo")
    )


def test_more_ranks_than_gpus_is_said_before_training(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setenv("LOCAL_RANK", "1")
    with pytest.raises(SystemExit):
        parse_flags([])
    assert (
        capsys.readouterr()
        .err.splitlines()[-1]
        .endswith("error: no GPU for local rank 1: start 1 a machine, or set CUDA_VISIBLE_DEVICES= for CPU")
    )
