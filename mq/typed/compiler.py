"""The compiler: takes a declared type apart and refuses, by path, what cannot be stored."""

from __future__ import annotations

import collections.abc
import enum
import types
import typing
from collections.abc import Callable, Iterator
from typing import Any

from mq.errors import DefinitionError
from mq.secret import Secret
from mq.typed import classes, containers, enums
from mq.typed.leaves import ANY, BIG, BYTEARRAY, JSON_LEAVES, LEAVES
from mq.typed.shape import NONE, Part, Refusal, Shape

TAG = "_type"
# Far more than anybody writes, and far from the interpreter's own limit.
_MAX_TYPE_DEPTH = 100


class AsText:
    """Marks an int in an Annotated that travels as decimal text, so that it may be any size."""


BigInt = typing.Annotated[int, AsText()]

_SEQUENCES: dict[Any, type] = {
    list: list,
    collections.abc.Sequence: list,
    collections.abc.MutableSequence: list,
    collections.abc.Iterable: list,
    collections.abc.Collection: list,
    set: set,
    collections.abc.Set: set,
    collections.abc.MutableSet: set,
    frozenset: frozenset,
}
_MAPPINGS = (dict, collections.abc.Mapping, collections.abc.MutableMapping)
# ReadOnly is new in Python 3.13.
_UNWRAPPED = (
    typing.Final,
    typing.Required,
    typing.NotRequired,
    getattr(typing, "ReadOnly", typing.Final),
)


class _Later:
    """The shape of a class that is still being compiled, for its own fields to refer to."""

    shape: Shape

    def placeholder(self, kind: Any) -> Shape:
        """Return a shape that looks the real one up when it is called."""
        wire = list if issubclass(kind, tuple) else dict
        types = (dict if typing.is_typeddict(kind) else kind,)
        return Shape(
            kind.__name__, self._encode, self._decode, frozenset({wire}), types,
            self._parts, self._wire_parts,
        )  # fmt: skip

    def _encode(self, value: Any) -> Any:
        return self.shape.encode(value)

    def _decode(self, wire: Any) -> Any:
        return self.shape.decode(wire)

    def _parts(self, value: Any) -> Iterator[Part]:
        return self.shape.parts(value)

    def _wire_parts(self, wire: Any) -> Iterator[Part]:
        return self.shape.wire_parts(wire)


class Compiler:
    """Compiles the types of one definition.

    Args:
        json: compile for what a person wrote as JSON, rather than for what is stored.
        what: how messages name the definition's part, such as "payload of send-invite".
    """

    def __init__(self, what: str, *, json: bool = False) -> None:
        self.what = what
        self.json = json
        self.unbounded = False
        """Whether values may nest without end: then their depth is counted."""
        self._depth = 0
        self._done: dict[Any, Shape] = {}
        self._open: dict[Any, _Later] = {}

    def shape(self, declared: Any, path: str = "$") -> Shape:
        """Return the shape of a type, or raise DefinitionError naming the field."""
        self._depth += 1
        try:
            if self._depth > _MAX_TYPE_DEPTH:
                reason = "the type refers to itself without end; declare a class, or Any"
                raise self._refused("$", reason)
            return self._shape(declared, path)
        finally:
            self._depth -= 1

    def _shape(self, declared: Any, path: str) -> Shape:
        declared, big = _unwrap(declared)
        if big:
            return JSON_LEAVES[BIG] if self.json else BIG
        if declared is Any:
            self.unbounded = True
            return ANY
        if declared is None:
            return LEAVES[NONE]
        if isinstance(declared, type) and declared in LEAVES:
            return self._leaf(declared)
        if declared is bytearray:
            return JSON_LEAVES[bytearray] if self.json else BYTEARRAY
        if isinstance(declared, str | typing.ForwardRef):
            raise self._refused(path, f"the annotation {declared!r} is not resolved")
        return self._composite(declared, path)

    def _composite(self, declared: Any, path: str) -> Shape:
        origin, arguments = typing.get_origin(declared) or declared, typing.get_args(declared)
        if origin in (typing.Union, types.UnionType):
            return self._union(arguments, path)
        if origin is typing.Literal:
            return self._made(lambda: enums.literal(arguments), path)
        if origin in _SEQUENCES:
            item = self.shape(arguments[0] if arguments else Any, path + "[]")
            return self._hashable(containers.sequence(_SEQUENCES[origin], item), item, path)
        if origin is tuple:
            return self._tuple(declared, arguments, path)
        if origin in _MAPPINGS:
            return self._mapping(arguments, path)
        if origin is Secret:
            inner = self.shape(arguments[0] if arguments else Any, path)
            return containers.json_secret(inner) if self.json else containers.secret(inner)
        if isinstance(origin, type) and issubclass(origin, enum.Enum):
            return self._made(lambda: enums.enumeration(origin), path)
        if _is_class_like(origin):
            return self._class(declared, origin, arguments, path)
        return self._foreign(declared, path)

    def _leaf(self, key: Any) -> Shape:
        if self.json and key in JSON_LEAVES:
            return JSON_LEAVES[key]
        return LEAVES[key]

    def _made(self, make: Callable[[], Shape], path: str) -> Shape:
        try:
            return make()
        except Refusal as refusal:
            raise self._refused(path, str(refusal)) from None

    def _refused(self, path: str, reason: str) -> DefinitionError:
        return DefinitionError(f"{self.what} {path}: {reason}")

    def _hashable(self, shape: Shape, item: Shape, path: str) -> Shape:
        if shape.types[0] is not list and item.types and item.types[0] in (list, set, dict):
            raise self._refused(path, f"a {shape.name} cannot exist: its items are not hashable")
        return shape

    def _tuple(self, declared: Any, arguments: tuple[Any, ...], path: str) -> Shape:
        if arguments == () and declared in (tuple, typing.Tuple):  # noqa: UP006 both spellings
            arguments = (Any, ...)
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            return containers.sequence(tuple, self.shape(arguments[0], path + "[]"))
        items = [self.shape(part, f"{path}[{i}]") for i, part in enumerate(arguments)]
        name = f"tuple[{', '.join(item.name for item in items)}]"
        return containers.fixed_tuple(name, tuple, tuple, items)

    def _mapping(self, arguments: tuple[Any, ...], path: str) -> Shape:
        declared_key, declared_item = arguments or (Any, Any)
        key = self.shape(int | str if declared_key is Any else declared_key, f"{path} (key)")
        if not key.scalar:
            raise self._refused(f"{path} (key)", f"{key.name} cannot be a key; use a list of pairs")
        return containers.mapping(key, self.shape(declared_item, f"{path}[]"), json=self.json)

    def _union(self, arguments: tuple[Any, ...], path: str) -> Shape:
        declared = [part for part in arguments if part is not NONE]
        records = [part for part in declared if classes.is_record_class(_origin(part))]
        arms = [self.shape(part, path) for part in declared if part not in records]
        if len(records) == 1:
            arms.append(self.shape(records[0], path))
        elif records:
            arms.append(self._tagged(records, path))
        empty = len(declared) < len(arguments)
        _check_arms([*arms, LEAVES[NONE]] if empty else arms, self._refused, path, json=self.json)
        shape = arms[0] if len(arms) == 1 else containers.union(arms)
        return containers.optional(shape) if empty else shape

    def _tagged(self, records: list[Any], path: str) -> Shape:
        arms: dict[type, tuple[str, Shape]] = {}
        tags: set[str] = set()
        for part in records:
            kind = _origin(part)
            if kind.__name__ in tags:
                raise self._refused(path, f"two arms of the union are called {kind.__name__}")
            if TAG in {field.name for field in classes.fields_of(kind, ())}:
                raise self._refused(path, f"{kind.__name__} has a field {TAG}, which unions need")
            tags.add(kind.__name__)
            arms[kind] = (kind.__name__, self.shape(part, path))
        return containers.tagged(arms, TAG)

    def _class(self, declared: Any, kind: Any, arguments: tuple[Any, ...], path: str) -> Shape:
        if declared in self._done:
            return self._done[declared]
        if declared in self._open:
            self.unbounded = True
            return self._open[declared].placeholder(kind)
        later = self._open[declared] = _Later()
        try:
            later.shape = self._class_shape(kind, arguments, path)
        except DefinitionError as error:
            if error.message.startswith(self.what):
                raise
            raise self._refused(path, error.message) from error
        finally:
            del self._open[declared]
        self._done[declared] = later.shape
        return later.shape

    def _class_shape(self, kind: Any, arguments: tuple[Any, ...], path: str) -> Shape:
        if classes.is_record_class(kind):
            specs = classes.fields_of(kind, arguments)
            shapes = {spec.name: self.shape(spec.type, f"{path}.{spec.name}") for spec in specs}
            return classes.record(kind, specs, shapes, strict=self.json)
        hints = classes.hints_of(kind)
        if typing.is_typeddict(kind):
            shapes = {key: self.shape(part, f"{path}.{key}") for key, part in hints.items()}
            return classes.typed_dict(kind, shapes, classes.required_keys(kind, hints))
        items = [self.shape(hints.get(f, Any), f"{path}.{f}") for f in kind._fields]
        return containers.fixed_tuple(kind.__name__, kind, kind._make, items)

    def _foreign(self, declared: Any, path: str) -> Shape:
        shape = None
        if declared is not object and not isinstance(declared, typing.TypeVar):
            shape = classes.foreign(declared, ANY)
        if shape is None:
            name = getattr(declared, "__name__", None) or str(declared)
            fix = "make it an attrs class or a dataclass, or leave it out"
            raise self._refused(path, f"{name} cannot be stored; {fix}")
        self.unbounded = True
        return shape


def _origin(declared: Any) -> Any:
    return typing.get_origin(declared) or declared


def _is_class_like(kind: Any) -> bool:
    if classes.is_record_class(kind) or typing.is_typeddict(kind):
        return True
    return isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields")


def _unwrap(declared: Any) -> tuple[Any, bool]:
    """Return the type behind NewType, Annotated, aliases and qualifiers; and whether it is big."""
    while True:
        origin = typing.get_origin(declared)
        if origin is typing.Annotated:
            if any(isinstance(mark, AsText) for mark in declared.__metadata__):
                return declared, True
            declared = declared.__origin__
        elif origin in _UNWRAPPED:
            declared = typing.get_args(declared)[0]
        elif isinstance(declared, typing.NewType):
            declared = declared.__supertype__
        elif type(declared).__name__ == "TypeAliasType":
            declared = declared.__value__
        elif isinstance(declared, typing.TypeVar):
            if declared.__constraints__ or declared.__bound__ is None:
                return Any, False
            declared = declared.__bound__
        else:
            return declared, False


def _check_arms(
    arms: list[Shape], refused: Callable[[str, str], DefinitionError], path: str, *, json: bool
) -> None:
    """Raise unless each arm of a union is known by the kind of its plain data."""
    for index, arm in enumerate(arms):
        for other in arms[:index]:
            both = arm.kinds & other.kinds
            # JSON has fewer kinds than what is stored, and was checked as such already.
            if both and not json:
                kind = sorted("None" if k is NONE else k.__name__ for k in both)[0]
                raise refused(
                    path,
                    f"{other.name} and {arm.name} are both stored as {kind}, so the union "
                    "cannot tell them apart; declare one of them, or wrap them in classes",
                )
