"""A client of a deployment: trains the models it is sent on its own images and answers with uploads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from fedwca.core.messages import Blend, Offer
from fedwca.core.network import Network
from fedwca.data.federation import ClientImages
from fedwca.deploy.composition import Composition, read_composition
from fedwca.deploy.compression import NamedModels, TopKCompressor
from fedwca.deploy.deployable_checks import check_noise_coverage
from fedwca.deploy.half_precision import wire_types
from fedwca.deploy.privacy import Privacy, clamp_variances
from fedwca.deploy.wire_messages import MOMENTS, Parcel, row_to_tensors, tensors_problem, tensors_to_row
from fedwca.engine.batch_norm import BatchNormPolicy
from fedwca.engine.input_moments import measure_moments
from fedwca.engine.interface import ClientWork, SingleStep
from fedwca.engine.precision import check_precision, matmul_precision
from fedwca.engine.randomness import Keys
from fedwca.engine.sequential.engine import SequentialEngine
from fedwca.errors import DataError, Diverged, FedwcaError, UsageError
from fedwca.federated.aggregator_weights import blend_mixtures
from fedwca.federated.client_tasks import client_task
from fedwca.federated.trusted_clients import labeler_trust_alone, measure_trust_alone
from fedwca.federated.upload_checks import advise_lower, model_problem


class Client:
    """Answers a server's parcels, with an engine that runs this client alone.

    Its own model and the entries left out of earlier uploads are in ``engine.bank`` and ``residual``.

    Args:
        images: maps (side that the model needs, whether files are stretched to squares) to the training images uint8
            ``[N, 3, side, side]``.
        device: where to train.
        privacy: clipping and noise for updates before they are uploaded; None: none.
        moment_privacy: the same for the moments that clients may be grouped by.
    """

    def __init__(
        self,
        images: Callable[[int, bool], Tensor],
        device: str = "cpu",
        privacy: Privacy | None = None,
        moment_privacy: Privacy | None = None,
    ) -> None:
        self.images, self.device, self.privacy, self.moment_privacy = images, device, privacy, moment_privacy
        self.composition: Composition | None = None
        self.index = -1
        self.final: Tensor | None = None
        """The model that it ends with ``[P]``."""
        self.final_rounds = 0
        """Rounds of the federation behind ``final``, including those this client missed."""
        self.residual: Tensor | None = None
        """With feedback, what earlier uploads left out ``[L]``; entries of an answer that the server did not take are
        lost."""
        self.round_start: tuple[int, Tensor, Tensor | None] | None = None
        """The last round, and ``engine.bank`` and ``residual`` when it began: a round may be repeated."""
        self.trust: float | None = None
        """What the source model's outputs on this client's images say of the class, 0 to 1
        (`fedwca.functional.mutual_information`); not uploaded. None: not measured yet."""
        self._engine: SequentialEngine | None = None

    @property
    def engine(self) -> SequentialEngine:
        """The engine with this client alone; available once the source model has been received."""
        assert self._engine is not None
        return self._engine

    def set_up(self, composition: Composition, index: int, source: dict[str, Tensor]) -> None:
        """Set up the engine from what is sent once.

        Args:
            composition: what the client runs.
            index: this client's number.
            source: tensors of the source model, with its classifier.

        Raises:
            FedwcaError: the model does not fit the composition, there are no images, or the noise does not cover all
                that would be uploaded.
        """
        if self.privacy is not None:
            with_noise = self.moment_privacy is not None and (self.moment_privacy.noise > 0 or not self.privacy.noise)
            check_noise_coverage(composition, with_noise)
        model = composition.architecture()
        network = model.build(composition.classes, pretrained=False)
        expected_shapes = {name: tensor.shape for name, tensor in network.state_dict().items()}
        if {name: tensor.shape for name, tensor in source.items()} != expected_shapes:
            raise FedwcaError(f"the source model that was sent is no {model.name!r} of {composition.classes} classes")
        network.load_state_dict(source)
        network.eval()
        train = self.images(model.stored_side, composition.stretch)
        if len(train) == 0:
            raise DataError("this client has no images")
        self._engine = self._make_engine(composition, network, train, composition.batch_norm)
        self.composition, self.index = composition, index
        self.residual = self.round_start = self.trust = None

    def _make_engine(
        self, composition: Composition, network: Network, train: Tensor, batch_norm: BatchNormPolicy | str
    ) -> SequentialEngine:
        """Return an engine that holds this client alone.

        Raises:
            UsageError: this client's device does not have the deployment's precision.
        """
        try:
            check_precision(composition.precision, network.class_vectors.dtype, torch.device(self.device))
        except UsageError as error:
            raise UsageError(
                f"{error} in `fedwca deploy init` at the server, or start this client with another --device"
            ) from error
        clients = [ClientImages(train, train[:0])]
        return SequentialEngine(network, clients, self.device, 1, batch_norm, composition.precision)

    def handle(self, parcel: Parcel) -> Parcel:
        """Return the answer to one parcel.

        Raises:
            FedwcaError: what was sent does not fit, or training diverged.
        """
        if "source" in parcel.models:
            composition = read_composition(parcel)
            index, source = int(parcel.notes["client"]), dict(parcel.models["source"])
            # A restarted server sends everything again; this client's own state is kept then.
            if self._knows(composition, index, source):
                self.composition = composition  # what it kept from an earlier version may lack names
            else:
                self.set_up(composition, index, source)
        if self.composition is None:
            return Parcel("lost", parcel.round, notes={"token": parcel.notes.get("token", "")})
        with matmul_precision(self.composition.precision, self.device):
            return self._answer(parcel, self.composition)

    def _answer(self, parcel: Parcel, composition: Composition) -> Parcel:
        """Return the answer of a client that has the composition and the source model."""
        if parcel.kind == "final":
            engine = self.engine
            keeps_statistics = engine.batch_norm is BatchNormPolicy.LOCAL
            if keeps_statistics and torch.equal(engine.bank[0], engine.layout.read(engine.network)):
                # It lost what it kept: like a client that joins, it has the statistics of its own images.
                recalibrated = BatchNormPolicy.RECALIBRATED
                engine = self._make_engine(composition, engine.network, engine.images[0], recalibrated)
            self.final = engine.deliver(torch.ones(1, 1, dtype=torch.float64), self._models(parcel))[0]
            self.final_rounds = parcel.round
            return Parcel("done", parcel.round)
        return self._train(parcel, composition)

    def _knows(self, composition: Composition, index: int, source: dict[str, Tensor]) -> bool:
        """Return whether the client is already set up with these; see `set_up`."""
        if self.composition is None or self.index != index:
            return False
        held = self.engine.network.state_dict()
        same_source = held.keys() == source.keys() and all(torch.equal(held[key].cpu(), source[key]) for key in held)
        return same_source and self.composition.plays_as(composition)

    def _models(self, parcel: Parcel) -> Tensor:
        """Return the models that were sent ``[Q+S, P]``.

        If none was sent: the source model ``[1, P]``, or the client's own model if the method does not send models.
        """
        assert self.composition is not None
        layout = self.engine.layout
        sent = [parcel.models[f"sent-{i}"] for i in range(sum(name != "source" for name in parcel.models))]
        for number, model in enumerate(sent):
            if problem := tensors_problem(model, layout.slots, wire_types(layout, self.composition.transport)):
                raise FedwcaError(f"model {number} that was sent {problem}")
        if not sent:
            travels = self.composition.build().aggregator.sends_models
            return layout.read(self.engine.network)[None] if travels else self.engine.bank.clone()
        return torch.stack([tensors_to_row(model, layout) for model in sent]).to(self.engine.device)

    def _start_round(self, round: int, new: bool) -> None:
        """Restore the client's model and residual if the round is repeated; a new client starts from the source model.

        The server has no answer of a new client. What it answered before came too late, was refused, or was for another
        federation, so nothing of it may be left.
        """
        if new:
            self.engine.bank[0], self.residual = self.engine.layout.read(self.engine.network), None
        elif self.round_start is not None and self.round_start[0] == round:
            self.engine.bank[0], self.residual = self.round_start[1], self.round_start[2]
        self.round_start = (round, self.engine.bank[0].clone(), self.residual)

    def _is_new(self, parcel: Parcel) -> bool:
        """Return whether the server has no answer of this client.

        Raises:
            DataError: it has one, with another number of training images; it would refuse this answer.
        """
        known, images = int(parcel.notes["samples"]), len(self.engine.images[0])
        if known not in (0, images):
            raise DataError(
                f"this client has {images} images, and had {known} in an earlier round; they stay the same throughout "
                "a deployment: put them back as they were"
            )
        return not known

    def _train(self, parcel: Parcel, composition: Composition) -> Parcel:
        method, keys = composition.build(), Keys(composition.seed, composition.trial)
        aggregator, labeler = method.aggregator, method.pseudo_labeler
        first = bool(parcel.notes["first"])
        self._start_round(parcel.round, self._is_new(parcel) or first)
        rows = self._models(parcel)
        eye, personal = torch.eye(len(rows), dtype=torch.float64), int(parcel.notes["personal"])
        offer = Offer(eye[None, :personal], eye[personal:])
        # A client that comes late is grouped by a training like that of round 0.
        number = 0 if first else parcel.round
        task = client_task(method, composition.training, number, keys, self.index, parcel.beside)
        labeler_trust = None
        if "trusted" not in parcel.notes:
            labeler_trust = labeler_trust_alone(
                labeler, self.engine, self.engine.layout.read(self.engine.network), task
            )
        if self.trust is None:
            self.trust = measure_trust_alone(self.engine, self.engine.layout.read(self.engine.network), task)
        trusted = float(parcel.notes.get("trusted", 1)) if labeler_trust is None else float(labeler_trust[0])
        task, trust_notes = replace(task, trusted=trusted), {} if labeler_trust is None else {"trusted": trusted}

        def adapt(work: ClientWork) -> list[tuple[Blend, dict[str, Tensor]]]:
            blend = Blend(work.own) if first else blend_mixtures(aggregator, parcel.round, work)
            return [(blend, work.collect(work.train(blend))[0])]

        ((blend, collected),) = self.engine.run(SingleStep(offer, rows, lambda _: task, [0], adapt, trains=True))
        row = self.engine.bank[0]
        if problem := model_problem(row):
            raise Diverged(f"this client's model {problem}; {advise_lower('learning rate')}")
        if self.privacy is not None:
            # The model that training starts from may depend on the images; the first model sent does not.
            row = (rows[0] + self.privacy(row.cpu() - rows[0].cpu()).to(rows)).clone()
            clamp_variances(row, self.engine.layout)
        report = {name: value[0].float().cpu() for name, value in blend.report.items()}
        # The server measures updates from the same model: that of the chosen cluster, else the first that was sent.
        start = rows[0 if blend.labels is None else int(blend.labels)]
        if first and composition.moments is not None:
            moments = measure_moments(self.engine.network, self.engine.images[0], composition.moments).float().cpu()
            collected = {**collected, MOMENTS: moments if self.moment_privacy is None else self.moment_privacy(moments)}
        if blend.labels is not None:
            report["label"] = blend.labels.cpu()
        models = self._upload(row.cpu(), start.cpu(), composition) if aggregator.sends_models else {}
        if first and parcel.round:  # this update chooses a cluster and is in no mean, so what it left out is in none
            self.residual = None
        return Parcel(
            "upload",
            parcel.round,
            models,
            report,
            collected,
            {"token": parcel.notes["token"], "samples": len(self.engine.images[0]), **trust_notes},
        )

    def _upload(self, row: Tensor, start: Tensor, composition: Composition) -> NamedModels:
        layout = self.engine.layout
        if composition.top is None:
            return {"model": row_to_tensors(row, layout, composition.transport)}
        compressor = TopKCompressor(layout, composition.top, composition.transport)
        models, residual = compressor.compress(row, start, self.residual)
        self.residual = residual if composition.feedback else None
        return models
