"""The reference method: FedAvg, which summaries and comparisons take differences to where no other is named."""

REFERENCE = "fedavg"
