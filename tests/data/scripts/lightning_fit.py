"""Lightning's Trainer with DDP on the CPU."""

import argparse

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--strategy", default="ddp")
parser.add_argument("--accumulate", type=int, default=1)
parser.add_argument("--monitor-into")
args = parser.parse_args()
callbacks = []
if args.monitor_into:
    from stepscope.capture.lightning_callback import MonitorCallback

    callbacks.append(MonitorCallback(every=5, out=args.monitor_into))


class Regressor(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 8))

    def training_step(self, batch, _index):
        loss = self.layers(batch[0]).square().mean()
        self.log("loss", loss, sync_dist=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters())


lightning.seed_everything(0)
trainer = lightning.Trainer(
    accelerator="cpu",
    devices=2,
    strategy=args.strategy,
    max_steps=14,
    accumulate_grad_batches=args.accumulate,
    logger=False,
    callbacks=callbacks,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(Regressor(), DataLoader(TensorDataset(torch.randn(2048, 64)), batch_size=16))
