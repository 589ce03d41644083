"""The same traces by other tools: their figures beside ours, and what of the difference their definitions explain."""
