"""Hugging Face Trainer on a small random GPT-2, from a config: nothing is downloaded."""

import argparse

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

parser = argparse.ArgumentParser()
parser.add_argument("--accumulate", type=int, default=1)
parser.add_argument("--monitor-into")
args = parser.parse_args()
callbacks = []
if args.monitor_into:
    from stepscope.capture.transformers_callback import MonitorCallback

    callbacks.append(MonitorCallback(every=5, out=args.monitor_into))


class Tokens(Dataset):
    def __len__(self):
        return 256

    def __getitem__(self, index):
        tokens = torch.randint(0, 128, (32,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": tokens, "labels": tokens}


torch.manual_seed(0)
model = GPT2LMHeadModel(GPT2Config(vocab_size=128, n_positions=32, n_embd=64, n_layer=2, n_head=2))
trainer = Trainer(
    model=model,
    args=TrainingArguments(
        output_dir="unused",
        max_steps=14,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=args.accumulate,
        ddp_backend="gloo",
        use_cpu=True,
        save_strategy="no",
        logging_strategy="no",
        report_to=[],
        disable_tqdm=True,
    ),
    train_dataset=Tokens(),
    callbacks=callbacks,
)
trainer.train()
