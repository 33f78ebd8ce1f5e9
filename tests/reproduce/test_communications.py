"""Messages and bytes of SFDA's Table 4."""

import pytest

from fedwca.errors import UsageError
from fedwca.models.lenet import LeNet
from fedwca.reproduce.communications import fada_messages, mdmgb_bytes, mean_bytes, sfda_messages


def test_the_printed_table() -> None:
    epochs = (45, 90, 135, 180)
    assert [fada_messages(each, 7438, 64) for each in epochs] == [15660, 31320, 46980, 62640]
    assert [sfda_messages(each, 0.2) for each in epochs] == [18, 36, 54, 72]
    assert [sfda_messages(each, 0.2, centroids=True) for each in epochs] == [36, 72, 108, 144]


def test_several_aggregations_in_an_epoch() -> None:
    assert sfda_messages(10, 1) == 20
    assert sfda_messages(10, 4) == 80
    assert sfda_messages(3, 1 / 3) == 2


def test_what_is_refused() -> None:
    with pytest.raises(UsageError, match=r"45 epochs with 0\.3 aggregations each do not end in one"):
        sfda_messages(45, 0.3)
    with pytest.raises(UsageError, match="epochs >= 1"):
        sfda_messages(0, 1)
    with pytest.raises(UsageError, match="per epoch > 0"):
        sfda_messages(1, 0)
    with pytest.raises(UsageError, match="batch >= 1"):
        fada_messages(1, 100, 0)


def test_bytes_of_a_round_of_lenets() -> None:
    """Four sources, ten classes: 12.6 and 5.7 MB with MDMGB, 5.6 and 5.6 MB with a plain mean."""
    network = LeNet().build(10)
    buffers = [each for name, each in network.named_buffers() if "running" in name]
    values = sum(each.numel() for each in (*network.parameters(), *buffers))
    assert [round(each / 1e6, 1) for each in mdmgb_bytes(values, 4, 10, 256)] == [12.6, 5.7]
    assert [round(each / 1e6, 1) for each in mean_bytes(values, 4)] == [5.6, 5.6]
