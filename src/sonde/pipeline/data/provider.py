"""DataProvider: the items of one group, put together from its datasets, and batches of them. It needs no torch.

provider = DataProvider(config, "train")
provider[0]                                   {"data": {"image": array}, "object_id": "23"}
provider.collate([provider[0], provider[1]])  {"object_id": array of texts, "data": {"image": array of both}}
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from sonde.capture import tape
from sonde.errors import ConfigError, DataError, nearest
from sonde.pipeline.data import join, split
from sonde.pipeline.data.cache import Cache
from sonde.pipeline.data.collate import Batch, Item, Whose, Wrap, collator
from sonde.pipeline.data.nans import Nans
from sonde.pipeline.data.reading import FieldSource, augmented, identity, joining, mixed, reader, resolver
from sonde.pipeline.data.request import ID, Source, parse_request
from sonde.pipeline.datasets.make import check_methods, fields_of, make
from sonde.pipeline.tracing import NotedFunction

if TYPE_CHECKING:
    from array import array
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from os import PathLike

    from sonde.pipeline.config import Config

# Functions that are made anew where the provider is unpickled.
COMPOSED = ("_collate", "_handle", "_resolve", "_resolve_all")


class DataProvider:
    """The data of one group of `data_request`, by item and by batch."""

    def __init__(self, config: Config, group: str, *, augment: bool = True) -> None:
        """Make the datasets, choose the items and find what belongs together. Raises what is wrong with them.

        Fields are augmented as `data_request` says; with `augment=False` none is.
        """
        request = parse_request(config["data_request"])
        if group not in request:
            raise ConfigError(f"data_request has no group {group!r}. {nearest(group, list(request))}")
        self.config = config
        self.group = group
        self.augment = augment
        self.epoch = 0  # another number, and items are augmented in another way
        self.sources = request[group]
        self.datasets = {source.friendly: make(config, group, source) for source in self.sources}
        self.fields = {one.friendly: fields_of(group, one, self.datasets[one.friendly]) for one in self.sources}
        check_methods(group, self.sources, self.datasets)
        for source in self.sources:
            self._check_augment(source)
        self.nans = Nans(config["data"], self._nameable(request))
        self.rows = self._chosen(request)
        self.matched = self._joined()
        self._noted = tape.current() is not None  # what a trace shows is what happens after the preparations
        self._compose()

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Item:
        return self._resolve(index)

    def __getitems__(self, indices: Sequence[int]) -> list[Item]:
        """Several items: what a loader of torch asks for."""
        if self._noted:
            return [self._resolve(index) for index in indices]
        return self._resolve_all(indices)

    def resolve_data(self, index: int) -> Item:
        """One item: the fields of each dataset under its name, and the id."""
        return self._resolve(index)

    def collate(self, batch_dicts: list[Item]) -> Batch:
        """Items as a batch: an array for each field. NaN are treated as the configuration says."""
        return self._handle(self._collate(batch_dicts))

    def handle_nans(self, batch_dict: Batch) -> Batch:
        """The batch with its NaN treated as the configuration says. The given one is left as it is."""
        return self._handle(batch_dict)

    def object_id(self, index: int) -> str:
        """The id of an item."""
        return self._identity(self.sources[0])(self.rows[index])

    def ids(self) -> list[str]:
        """The ids of all items, in order."""
        identity = self._identity(self.sources[0])
        return [identity(row) for row in self.rows]

    def column(self, name: str) -> Any:
        """The values of one field of the primary dataset, "label" or "data.label", for all items, as an array."""
        return self._column(name, self.rows)

    def save_index(self, path: str | PathLike[str]) -> None:
        """Write which items of the primary dataset the group has, as a .npy file that `split.index` takes."""
        split.save_index(path, self.rows)

    def describe(self) -> str:
        """What the group consists of, as lines of text."""
        return "\n".join(_described(source, self.fields[source.friendly]) for source in self.sources)

    def __repr__(self) -> str:
        names = ", ".join(f"{one.friendly}: {one.dataset_class}" for one in self.sources)
        return f"<DataProvider of {self.group}: {len(self)} items of {names}>"

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in COMPOSED}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._compose()

    # ── at the beginning ─────────────────────────────────────────────────────────────────────────────────────────────

    def _check_augment(self, source: Source) -> None:
        if isinstance(source.augment, bool):
            return
        able = [
            one for one in self.fields[source.friendly] if hasattr(self.datasets[source.friendly], f"augment_{one}")
        ]
        for field in source.augment:
            if field not in able:
                raise ConfigError(
                    f"data_request.{self.group}.{source.friendly}.augment names {field!r}, which is not a requested "
                    f"field with a function augment_{field}. {nearest(field, able)}"
                )

    def _chosen(self, request: Mapping[str, list[Source]]) -> Sequence[int]:
        source = self.sources[0]
        table = self.config["split"]
        length = len(self.datasets[source.friendly])
        field = table["stratify_field"]
        classes = (lambda: self._column(field, range(length))) if field else None
        rows = split.rows_of(self.group, request, length, table["seed"], table["index"], classes)
        if self.config["data"]["check_ids"]:
            join.refuse_duplicates(f"data_request.{self.group}.{source.friendly}", rows, self._identity(source))
        return rows

    def _nameable(self, request: Mapping[str, list[Source]]) -> list[str] | None:
        """The fields of all groups, as `data.nan_fields` may name them; None if they are not all known."""
        declared = [source._replace(fields=self.fields[source.friendly]) for source in self.sources]
        declared += [source for group, sources in request.items() if group != self.group for source in sources]
        own = [name for dataset in self.datasets.values() for name in dir(dataset) if name.startswith("collate")]
        if own or any(source.fields is None for source in declared):
            return None
        return list(
            dict.fromkeys(
                name for one in declared for field in one.fields or () for name in (field, f"{one.friendly}.{field}")
            )
        )

    def _joined(self) -> dict[str, array[int]]:
        """For each further source, the row that belongs to each item of the group; -1: none."""
        primary, *others = self.sources
        found = {}
        for source in others:
            where = f"data_request.{self.group}.{source.friendly}"
            ids = map(self._identity(primary), self.rows)
            count = len(self.datasets[source.friendly])
            what = (str(source.join_field), primary.friendly)
            found[source.friendly] = join.matches(where, ids, count, self._identity(source), what)
        return found

    # ── composing ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _compose(self) -> None:
        """Put the functions together once, so that an item costs its getters and little else."""
        limit = self.config["data"]["cache_bytes"]
        cache = Cache(limit) if limit > 0 else None
        wrap = self._wrap("DataProvider")
        resolve_all = self._resolve_all = self._resolving(cache)

        def resolve(index: int) -> Item:
            return resolve_all((index,))[0]

        self._resolve: Callable[[int], Item] = wrap(resolve, "resolve_data", "index", "data_dict", "resolve_data")
        self._collate: Callable[[list[Item]], Batch] = wrap(
            self._collating(), "collate", "batch_dicts", "batch_dict", "collate"
        )
        self._handle: Callable[[Batch], Batch] = wrap(
            self.nans.handle, "handle_nans", "batch_dict", "batch_dict_no_nan", "collate"
        )

    def _wrap(self, owner: str) -> Wrap:
        """What lets a function appear in the trace that is active; without one, functions stay as they are."""

        def wrap(function: Callable[..., Any], name: str, argument: str, result: str, stage: str) -> Callable[..., Any]:
            return NotedFunction(function, owner, name, argument, result, stage) if self._noted else function

        return wrap

    def _resolving(self, cache: Cache | None) -> Callable[[Iterable[int]], list[Item]]:
        primary, *others = self.sources
        field = str(primary.primary_id_field)
        get = None if field in self.fields[primary.friendly] else self._getter(primary, field, noted=True)
        resolve = resolver(self.rows, self._part(primary, cache), field, get)
        joined = [(self._part(one, cache), self.matched[one.friendly]) for one in others]
        return joining(resolve, joined) if joined else resolve

    def _part(self, source: Source, cache: Cache | None = None, *, noted: bool = True) -> FieldSource:
        """How the fields of a source are read: from the cache if there is one, and augmented if they are to be."""
        whose = self._whose(source)
        getters = []
        for field in self.fields[source.friendly]:
            get = self._getter(source, field, noted=noted)
            get = get if cache is None else cache.around(get)
            getters.append((field, self._augmented(source, field, get)))
        return FieldSource(whose, getters, lambda row: self._words(source, row))

    def _getter(self, source: Source, field: str, *, noted: bool = False) -> Callable[[int], Any]:
        get = getattr(self.datasets[source.friendly], f"get_{field}")
        return self._wrap(source.friendly)(get, f"get_{field}", "index", field, "dataset_getter") if noted else get

    def _column(self, name: str, rows: Iterable[int]) -> Any:
        source = self.sources[0]
        field = name.removeprefix(f"{source.friendly}.")
        known = fields_of(self.group, source._replace(fields=None), self.datasets[source.friendly])
        if field not in known:
            raise ConfigError(f"{name!r} is not a field of {source.friendly!r}. {nearest(field, list(known))}")
        getters = [(field, self._getter(source, field))]
        read = reader(FieldSource(self._whose(source), getters, lambda row: self._words(source, row)))
        return np.array([read(row)[field] for row in rows])

    def _augmented(self, source: Source, field: str, get: Callable[[int], Any]) -> Callable[[int], Any]:
        function = getattr(self.datasets[source.friendly], f"augment_{field}", None)
        wanted = source.augment if isinstance(source.augment, bool) else field in source.augment
        if function is None or not (self.augment and wanted):
            return get
        getter = self._wrap(source.friendly)(function, f"augment_{field}", "value", field, "dataset_getter")
        seed = self.config["general"]["seed"]
        return augmented(self._whose(source), field, get, getter, lambda row: mixed(seed, self.epoch, row))

    def _identity(self, source: Source) -> Callable[[int], str]:
        """What gives the id of a row; for a joined source the id that it belongs to."""
        field = str(source.primary_id_field or source.join_field)
        return identity(self._whose(source), field, self._getter(source, field))

    def _words(self, source: Source, row: int) -> str:
        """An item in a message: its index and its id. The id may be what cannot be read."""
        try:
            return f"item {row} (id {self._identity(source)(row)!r})"
        except DataError:
            return f"item {row} (its id cannot be read)"

    def _whose(self, source: Source) -> Whose:
        return Whose(source.friendly, type(self.datasets[source.friendly]).__name__)

    def _collating(self) -> Callable[[list[Item]], Batch]:
        puts = [self._collator(source) for source in self.sources]

        def collate(batch_dicts: list[Item]) -> Batch:
            if not batch_dicts:
                raise DataError(f"A batch of {self.group} has no items.")
            batch: Batch = {ID: np.array([item[ID] for item in batch_dicts])}
            for put in puts:
                put(batch, batch_dicts)
            return batch

        return collate

    def _collator(self, source: Source) -> Callable[[Batch, list[Item]], None]:
        fields, dataset = self.fields[source.friendly], self.datasets[source.friendly]
        template = None if source is self.sources[0] else lambda: reader(self._part(source, noted=False))(0)
        return collator(self._whose(source), fields, dataset, template, self._wrap(source.friendly))


def _described(source: Source, fields: tuple[str, ...]) -> str:
    lines = [
        f"Name: {source.friendly}{' (primary dataset)' if source.primary_id_field else ''}",
        f"  Dataset class: {source.dataset_class}",
        f"  Data location: {source.data_location or 'none'}",
    ]
    if source.primary_id_field:
        lines.append(f"  Fraction of data to use: {source.split_fraction or 1.0}")
        lines.append(f"  Primary ID field: {source.primary_id_field}")
    else:
        lines.append(f"  Join field: {source.join_field}")
    lines.append(f"  Requested fields: {', '.join(fields)}")
    return "\n".join(lines)
