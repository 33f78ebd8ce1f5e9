"""Images in, federations out: reading, checking, partitioning, and the metrics that alone keep the labels.

All of it holds for any data set. What is known of one by its name (files, checksums, how to get it) is its file in
`fedwca.datasets`.
"""

from __future__ import annotations

from fedwca.core.files import write_atomically
from fedwca.data.archives import read_npz
from fedwca.data.cache import cache_dir, data_dir
from fedwca.data.dataset import DatasetWarning, Domain, FederatedDataset
from fedwca.data.decode_folders import read_image_folder
from fedwca.data.federation import ClientImages, Federation
from fedwca.data.metrics import Metrics
from fedwca.data.partition import leave_one_out, partition
from fedwca.data.read_domains import read_domains
from fedwca.errors import DatasetMissing

__all__ = [
    "ClientImages",
    "DatasetMissing",
    "DatasetWarning",
    "Domain",
    "FederatedDataset",
    "Federation",
    "Metrics",
    "cache_dir",
    "data_dir",
    "leave_one_out",
    "partition",
    "read_domains",
    "read_image_folder",
    "read_npz",
    "write_atomically",
]
