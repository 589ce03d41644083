"""Recording a training script under torchrun without an edit to it; the only importers of torch."""
