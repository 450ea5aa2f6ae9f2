"""A trace put together by hand, note by note: two items of a random dataset go into an autoencoder."""

from __future__ import annotations

from typing import Any

from sonde.capture.result import TraceCall, TraceResult
from sonde.values.note import ARRAY, MAPPING, SCALAR, SEQUENCE, TEXT, CapturedValue, Item, Note

FIRST, SECOND, IDS, BATCH = 26660822658842624, 7316936887107584, 16373538229540728419, 20065364041793536


def array(shape: tuple[int, ...], digest: int, kind: str = "numpy.ndarray") -> Note:
    """An array of which no more is known than the layout needs."""
    return Note(ARRAY, kind, shape=shape, digest=digest, device="cpu")


def number(value: float) -> Note:
    """A number."""
    return Note(SCALAR, type(value).__name__, text=repr(value), value=value)


def words(value: str) -> Note:
    """A text."""
    return Note(TEXT, "str", text=repr(value), length=len(value))


def mapping(**children: Note) -> Note:
    """A dict."""
    return Note(MAPPING, "dict", length=len(children), children=tuple(children.items()))


def sequence(*children: Note) -> Note:
    """A list."""
    parts = tuple((str(place), child) for place, child in enumerate(children))
    return Note(SEQUENCE, "list", length=len(children), children=parts)


def train() -> TraceResult:
    """What training with two items gives."""
    hand = _Hand()
    images = [array((1, 32, 32), FIRST), array((1, 32, 32), SECOND)]
    samples = [mapping(data=mapping(image=image), object_id=words(str(23 + n))) for n, image in enumerate(images)]
    items = [Item(0, 0, "23"), Item(1, 1, "24")]
    for n, (image_ns, id_ns) in enumerate([(11_700, 7_670), (1_170, 1_180)]):
        about: dict[str, Any] = {"stage": "dataset_getter", "items": items[n : n + 1]}
        hand.call("data__get_image", {"index": number(n)}, "image", images[n], image_ns, **about)
        hand.call("data__get_object_id", {"index": number(n)}, "object_id", words(str(23 + n)), id_ns, **about)
    for n, taken in enumerate([193_000, 37_500]):
        about = {"stage": "resolve_data", "items": items[n : n + 1]}
        hand.call("DataProvider__resolve_data", {"index": number(n)}, "data_dict", samples[n], taken, **about)
    batch = mapping(object_id=array((2,), IDS), data=mapping(image=array((2, 1, 32, 32), BATCH)))
    both: dict[str, Any] = {"stage": "collate", "items": items}
    hand.call("DataProvider__collate", {"batch_dicts": sequence(*samples)}, "batch_dict", batch, 120_000, **both)
    hand.call("DataProvider__handle_nans", {"batch_dict": batch}, "batch_dict_no_nan", batch, 59_600, **both)
    inputs = array((2, 1, 32, 32), BATCH)
    both["stage"] = "prepare_inputs"
    hand.call("HyraxAutoencoder__prepare_inputs", {"batch_dict": batch}, "batch_ndarray", inputs, 6_850, **both)
    both["stage"] = "evaluation"
    tensor = array((2, 1, 32, 32), BATCH, "torch.Tensor")
    loss = mapping(loss=number(218.092529296875))
    hand.call("HyraxAutoencoder__train_batch", {"batch": tensor}, "loss_dict", loss, 213_000_000, **both)
    return hand.result


class _Hand:
    def __init__(self) -> None:
        self.result = TraceResult(2)
        self.calls = 0

    def call(
        self,
        name: str,
        inputs: dict[str, Note],
        result_name: str,
        output: Note,
        taken: int,
        stage: str,
        items: list[Item],
    ) -> None:
        self.calls += 1
        self.result.add(
            TraceCall(
                name,
                stage_name=stage,
                inputs=[CapturedValue(one, note) for one, note in inputs.items()],
                output=CapturedValue(result_name, output),
                duration_ns=taken,
                seq=self.calls,
                items=items,
                pid=17,
            )
        )
