"""The description of an exported model: in its file, and on the model card beside it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from fedwca.core.printable import printable
from fedwca.errors import CheckpointError

KEY = "fedwca"
"""Key of the `ModelDescription`, as JSON, in the metadata of a file."""
FORMAT = 1
"""Version of that JSON; increased when an older reader would misunderstand it."""


class ModelDescription(BaseModel):
    """Everything needed to run a model and to judge its predictions."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    format: int = FORMAT
    """Version of this description."""
    fedwca: str
    """Version of fedwca that wrote it."""
    classes: tuple[str, ...] = Field(min_length=1)
    """Names of the outputs, in order."""
    side: int = Field(ge=1, le=4096)
    """Height and width of the images that go in, in pixels."""
    stretch: bool = False
    """Whether image files were stretched to squares in training; else cropped around the centre."""
    model: dict[str, Any]
    """Architecture: name and fields."""
    method: str
    """Name of the method that made it."""
    label: str
    """Name of the method in tables."""
    holder: str
    """Whose model it is: ``client 3``, ``cluster 1``, ``a newcomer``."""
    dataset: str
    """Data set of the run, or whose the labelled images are, as in a deployment."""
    source: str
    """Domain of the labelled images; where clients have them, names of all such domains; empty where it is unknown."""
    domain: str | None = None
    """True domain of the holder; None where it is unknown."""
    clients: tuple[int, ...] = ()
    """Clients it was made for."""
    rounds: int
    """Communication rounds behind it."""
    last_phase: bool = False
    """Whether its holder, a target, trained it further after these rounds."""
    config_hash: str
    """Hash of the run's resolved configuration."""
    weights_hash: str
    """Hash of the model's tensors."""
    accuracy: float | None = None
    """Percent on the holder's own test images; None where there are none."""
    source_accuracy: float | None = None
    """The same for the source model."""
    images: int = 0
    """Number of test images behind these accuracies."""
    notes: tuple[str, ...] = ()
    """Sentences for the card."""

    def text(self) -> str:
        """The description as JSON."""
        return self.model_dump_json()

    @classmethod
    def read(cls, text: str | None, file: object) -> ModelDescription:
        """The description in a file's metadata.

        Args:
            text: JSON; None where the file has none.
            file: the file, for messages.

        Raises:
            CheckpointError: there is no valid description, or a later fedwca wrote it.
        """
        message = f"{file}: not a model exported by fedwca; `fedwca export` writes them"
        if text is None:
            raise CheckpointError(message)
        try:
            values = json.loads(text)
            written = values.get("format") if isinstance(values, dict) else None
            if isinstance(written, int) and written > FORMAT:  # its fields may be others
                version = printable(str(values.get("fedwca", "of a later version"))[:50])
                raise CheckpointError(f"{file}: written by fedwca {version}, whose format this version cannot read")
            return cls.model_validate(values)
        except (ValueError, TypeError, RecursionError):
            raise CheckpointError(f"{message} (its description is damaged or of another version)") from None

    def check_is_of(self, model: str, classes: Sequence[str], file: object) -> None:
        """Refuse a model of another architecture or other classes.

        Fields of the architecture may differ, such as ``side`` or ``dropout``, as far as the tensors fit.

        Args:
            model: name of the architecture that is needed.
            classes: names of the classes that are needed, in order; another number of them is another shape of tensors,
                which is refused as such.
            file: the file, for messages.

        Raises:
            CheckpointError: it is such a model.
        """
        if (name := self.model.get("name")) != model:
            raise CheckpointError(f"{file}: is a model {name!r}, and the run's is {model!r}; --model has to agree")
        for number, (own, needed) in enumerate(zip(self.classes, classes, strict=False)):
            if own != needed:
                raise CheckpointError(
                    f"{file}: its class {number} is {own!r}, and that of the data {needed!r}; a model needs the same "
                    "classes in the same order"
                )


def weights_hash(tensors: Mapping[str, Tensor]) -> str:
    """Hash of a model's tensors, by name: equal for equal models, whatever file they are in."""
    content = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        content.update(name.encode() + b"\0" + tensor.detach().cpu().contiguous().numpy().tobytes())
    return content.hexdigest()[:16]
