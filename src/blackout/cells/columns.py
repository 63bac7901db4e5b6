"""Kind: what a column of obs is made of, as plain JSON, so that drawn cells get columns of the same dtype."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy
from numpy.typing import NDArray

from blackout.cells.table import optional

_TYPES: dict[str, Callable[[str], Any]] = {"bool": "True".__eq__, "int": int, "float": float, "str": str}


@dataclass(frozen=True)
class Kind:
    """A dtype of numpy or pandas by its name; of categories also which there are, in their order."""

    dtype: str = "object"
    of: str = "str"
    """What the values are, or the categories: bool, int, float, str, or the dtype of times."""
    categories: tuple[str, ...] | None = None
    ordered: bool = False

    @staticmethod
    def of_series(column: Any) -> "Kind":
        """That of a pandas Series, or of a numpy array."""
        if str(column.dtype) != "category":
            text = getattr(column.dtype, "kind", "O") in "US"  # strings of numpy's own become objects in pandas
            return Kind("object" if text else str(column.dtype), _values(column))
        categories = column.cat.categories
        names = tuple(str(value) for value in categories.tolist())
        return Kind("category", _values(categories), names, bool(column.cat.ordered))

    @staticmethod
    def from_dict(values: dict[str, Any]) -> "Kind":
        names = values["categories"]
        return Kind(values["dtype"], values["of"], None if names is None else tuple(names), values["ordered"])

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def parse(self, texts: Sequence[str]) -> list[Any]:
        """Values from how str writes them."""
        if self.of in _TYPES:
            return [_TYPES[self.of](text) for text in texts]
        return list(optional("pandas", "columns of times").to_datetime(list(texts)))

    def column(self, values: Sequence[Any] | NDArray[Any]) -> Any:
        """A pandas array of these values; one that is missing stays so."""
        pandas = optional("pandas", "columns of obs")
        if self.categories is not None:
            categories = self.parse(self.categories)
            return pandas.Categorical(list(values), categories=categories, ordered=self.ordered)
        return pandas.Series(list(values), dtype="object").astype(self.dtype).array


def _values(column: Any) -> str:
    kind = getattr(column.dtype, "kind", "O")  # dtypes of pandas' own have one too
    if kind in "M":
        return str(column.dtype)
    name = {"b": "bool", "i": "int", "u": "int", "f": "float"}.get(kind)
    if name is not None:
        return name
    # A missing value is none of the types, and says nothing of the others.
    missing = numpy.asarray(optional("pandas", "columns of obs").isna(column), bool)
    types = {type(value) for value in numpy.asarray(column, object)[~missing].tolist()}
    return next((name for name, own in (("bool", bool), ("int", int), ("float", float)) if types == {own}), "str")
