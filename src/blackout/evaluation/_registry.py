"""Stand-in for blackout.registry, with the same interface."""

from collections.abc import Iterator
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Registry(Generic[T]):
    def __init__(self, noun: str) -> None:
        self.noun = noun
        self._entries: dict[str, tuple[T, str, dict[str, Any]]] = {}

    def add(self, name: str, entry: T, help: str, **defaults: Any) -> None:
        self._entries[name] = entry, help, defaults

    def remove(self, name: str) -> None:
        del self._entries[name]

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __getitem__(self, name: str) -> T:
        if name not in self._entries:
            raise ValueError(f"{self.noun} must be one of {', '.join(map(repr, self._entries))}, got {name!r}")
        return self._entries[name][0]

    def help(self, name: str) -> str:
        return self._entries[name][1]

    def make(self, name: str, *args: Any, **kwargs: Any) -> Any:
        entry: Any = self[name]
        return entry(*args, **{**self._entries[name][2], **kwargs})
