"""Several processes that share the clients of a run under `torchrun`."""
