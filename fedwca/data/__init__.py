"""Read and check data sets, deal their images to clients, and measure results with the labels that clients lack.

Everything here works for any data set. What is specific to a named one (files, checksums, how to get it) is in its
module of `fedwca.datasets`.
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
