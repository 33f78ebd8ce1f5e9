"""Where a run computes and whether it fits: device, engine, kernels, clients at once, memory and disk."""
