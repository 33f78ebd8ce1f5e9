import pytest
import torch

from fedwca.core.network import Network
from fedwca.deploy.server_context import ModelSignatures
from fedwca.engine.batch_norm import BatchNormPolicy
from fedwca.engine.client_signatures import BankSignatures
from fedwca.engine.parameter_layout import Layout, Slot, mix_rows
from fedwca.engine.sequential.replica import Replica
from fedwca.errors import CheckpointError, InvalidConfig, UsageError
from tests.conftest import a_network


def test_a_row_holds_the_extractor_and_its_statistics_but_not_the_classifier(network: Network) -> None:
    layout = Layout.of(network)
    names = [slot.name for slot in (*layout.parameters, *layout.statistics)]
    assert not any(name.startswith("classifier") for name in names)
    assert [slot.name for slot in layout.statistics] == ["norm.running_mean", "norm.running_var"]
    # conv 3·5·5·4 + 4, conv 4·5·5·8 + 8, fully connected 32·16 + 16, BatchNorm 2·16
    assert layout.trained == 304 + 808 + 528 + 32
    assert layout.width == layout.trained + 32


def test_reading_what_was_written(network: Network) -> None:
    layout = Layout.of(network)
    row = torch.randn(layout.width)
    layout.write(network, row)
    assert torch.equal(layout.read(network), row)


def test_a_row_of_another_model_is_refused(network: Network) -> None:
    with pytest.raises(CheckpointError, match="needs"):
        Layout.of(network).write(network, torch.zeros(7))


def test_binding_copies_nothing_and_predicts_as_the_module_does(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(network), "eval_batch_size", 3)  # several batches, the last of them smaller
    layout = Layout.of(network)
    replica = Replica(network, layout)
    other = a_network(seed=2)
    other.classifier.load_state_dict(network.classifier.state_dict())
    images = torch.randint(0, 256, (7, 3, 8, 8), dtype=torch.uint8)
    rows = torch.stack([layout.read(network), layout.read(other)])
    for row, module in zip(rows, (network, other), strict=True):
        replica.bind(row)
        assert replica.network.bottleneck.weight.untyped_storage().data_ptr() == row.untyped_storage().data_ptr()
        module.eval()
        expected = module(module.prepare(images))[0]
        assert torch.allclose(replica.predict(images).logits, expected, atol=1e-6)


def test_mixtures_are_weighted_sums() -> None:
    rows = torch.tensor([[1.0, 2.0], [3.0, 6.0]])
    assert mix_rows(torch.tensor([[0.25, 0.75]], dtype=torch.float64), rows).tolist() == [[2.5, 5.0]]


def test_mixtures_depend_on_no_number_of_threads() -> None:
    """A product of a 10×20 matrix with rows of 62,000 values differs in its last digits between one and two threads."""
    generator = torch.Generator().manual_seed(0)
    weights = torch.rand(10, 20, generator=generator).softmax(1)
    rows = torch.randn(20, 62_000, generator=generator)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        alone = mix_rows(weights, rows)
        torch.set_num_threads(2)
        if torch.equal(weights @ rows, alone):
            pytest.skip("products do not depend on the number of threads here")
        assert torch.equal(mix_rows(weights, rows), alone)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)


def test_signatures_are_slices_of_the_bank(network: Network) -> None:
    layout = Layout.of(network)
    bank = torch.arange(2.0 * layout.width).view(2, -1)
    signatures = BankSignatures(bank, layout, bank[0])
    assert torch.equal(signatures.layer_weights(1), bank[:, :304])
    assert torch.equal(signatures.layer_weights(3), bank[:, 1112:1640])
    assert signatures.batch_norm_statistics().shape == (2, 32)
    assert torch.equal(signatures.source_signatures().layer_weights(1), bank[:1, :304])
    with pytest.raises(InvalidConfig, match="3 layers"):
        signatures.layer_weights(4)
    for kind in (BankSignatures, ModelSignatures):  # what a clusterer does to a copy reaches nobody else
        measured = {"bottleneck": torch.ones(2, 3, dtype=torch.float64)}
        kind(bank, layout, bank[0], measured=measured).moments("bottleneck").zero_()
        assert bool((measured["bottleneck"] == 1).all())
    with pytest.raises(UsageError):
        signatures.domains()


def test_pooled_variances_count_the_spread_of_earlier_rows_too() -> None:
    # Half of a model of mean 1 and variance 1, half of one of mean 3 and variance 1: mean 2, and variance 1 within
    # the models plus 1 between them.
    slots = (Slot("norm.running_mean", (1,), 1), Slot("norm.running_var", (1,), 2))
    layout = Layout((Slot("weight", (1,), 0),), slots)
    weights = torch.tensor([[0.5, 0.5]])
    row = BatchNormPolicy.POOLED.gather(weights, torch.tensor([[1.0, 1, 1]]), torch.tensor([[3.0, 3, 1]]), layout)
    assert row.tolist() == [[2, 2, 2]]
