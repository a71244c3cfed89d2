"""Shapes of records: attrs classes, dataclasses, typed dicts and named tuples."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import typing
from collections.abc import Callable, Iterator
from typing import Any

import attrs

from mq.errors import DefinitionError
from mq.typed.shape import Part, Refusal, Shape, expected, refusing

_MISSING = refusing("is missing")


@attrs.frozen
class FieldSpec:
    """A field of an attrs class or dataclass: its name, the name that `__init__` takes, its type.

    `argument` is None for a field that `__init__` does not set.
    """

    name: str
    argument: str | None
    type: Any
    required: bool


def is_record_class(kind: Any) -> bool:
    """Return whether it is an attrs class or a dataclass."""
    return isinstance(kind, type) and (attrs.has(kind) or dataclasses.is_dataclass(kind))


def fields_of(kind: type, arguments: tuple[Any, ...]) -> list[FieldSpec]:
    """Return the fields with their types resolved.

    Args:
        kind: an attrs class or a dataclass.
        arguments: what its type parameters stand for.

    Raises:
        DefinitionError: when an annotation cannot be resolved, or `__init__` does not take them.
    """
    hints = hints_of(kind)
    variables = _variables(kind, arguments)
    specs = []
    for field in attrs.fields(kind) if attrs.has(kind) else dataclasses.fields(kind):
        declared = substitute(hints.get(field.name, Any), variables)
        if isinstance(field, dataclasses.Field):
            argument = field.name
            default = field.default is not dataclasses.MISSING
            default = default or field.default_factory is not dataclasses.MISSING
        else:
            argument, default = field.alias, field.default is not attrs.NOTHING
        taken = argument if field.init else None
        specs.append(FieldSpec(field.name, taken, declared, field.init and not default))
    _check_init(kind, specs)
    return specs


def hints_of(kind: type) -> dict[str, Any]:
    """Return the annotations of a class with names resolved, its own name included."""
    try:
        return typing.get_type_hints(kind, localns={kind.__name__: kind}, include_extras=True)
    except Exception as error:
        raise DefinitionError(
            f"cannot resolve the annotations of {kind.__name__} ({error}); "
            "define the types at module level, or without `from __future__ import annotations`"
        ) from error


def _check_init(kind: type, specs: list[FieldSpec]) -> None:
    own = "__attrs_attrs__" in kind.__dict__ or "__dataclass_fields__" in kind.__dict__
    if not own and "__init__" in kind.__dict__:
        raise DefinitionError(f"{kind.__name__} has fields by inheritance only; decorate it too")
    arguments = {spec.argument: None for spec in specs if spec.argument is not None}
    try:
        inspect.signature(kind).bind(**arguments)
    except (TypeError, ValueError) as error:
        raise DefinitionError(
            f"{kind.__name__} cannot be rebuilt from its fields: __init__ {error}; "
            "let attrs or dataclass write __init__"
        ) from None


def _variables(kind: type, arguments: tuple[Any, ...]) -> dict[Any, Any]:
    """Return what each type variable of a class and of its generic bases stands for."""
    own = getattr(kind, "__parameters__", ())
    found = dict(zip(own, arguments, strict=False))
    for base in getattr(kind, "__orig_bases__", ()):
        origin = typing.get_origin(base)
        if isinstance(origin, type) and origin is not typing.Generic:
            passed = tuple(substitute(part, found) for part in typing.get_args(base))
            found = _variables(origin, passed) | found
    return found


def substitute(declared: Any, variables: dict[Any, Any]) -> Any:
    """Return a type with its type variables replaced."""
    if isinstance(declared, typing.TypeVar):
        return variables.get(declared, declared)
    free = getattr(declared, "__parameters__", ())
    if free and not isinstance(declared, type):
        return declared[tuple(variables.get(variable, variable) for variable in free)]
    return declared


def record(kind: type, specs: list[FieldSpec], shapes: dict[str, Shape], *, strict: bool) -> Shape:
    """Return the shape of an attrs class or dataclass: a map of its fields by name.

    Args:
        kind: the class; a subclass of it is another type and is refused.
        specs: its fields.
        shapes: their shapes.
        strict: whether unknown fields are refused (in what a person typed) or ignored (in what a
            newer release stored).
    """
    name = kind.__name__
    unstructure = _unstructure(kind, shapes)
    needed = [spec.name for spec in specs if spec.required]
    unknown = refusing(f"is no field of {name}; it has {', '.join(shapes) or 'none'}")

    def encode(value: Any) -> Any:
        if type(value) is not kind:
            raise expected(name, value)
        return unstructure(value)

    def parts(value: Any) -> Iterator[Part]:
        if type(value) is kind:
            for field, shape in shapes.items():
                yield f".{field}", getattr(value, field), shape

    decode = _decode_record(kind, specs, shapes, needed, strict=strict)
    wire_parts = _wire_fields(shapes, needed, unknown if strict else None)
    return Shape(name, encode, decode, frozenset({dict}), (kind,), parts, wire_parts)


def _decode_record(
    kind: type, specs: list[FieldSpec], shapes: dict[str, Shape], needed: list[str], *, strict: bool
) -> Callable[[Any], Any]:
    structure = _structure(kind, specs, shapes)
    late = [(spec.name, shapes[spec.name].decode) for spec in specs if spec.argument is None]

    def decode(wire: Any) -> Any:
        if type(wire) is not dict:
            raise expected(kind.__name__, wire)
        if strict and not wire.keys() <= shapes.keys():
            raise Refusal("has unknown fields")
        for field in needed:
            if field not in wire:
                raise Refusal(f"field {field} is missing")
        value = structure(wire, kind)
        for field, decode_field in late:
            if field in wire:
                # Frozen classes refuse the plain way; nobody else has seen the object yet.
                object.__setattr__(value, field, decode_field(wire[field]))
        return value

    return decode


def _simple(kind: Any, shapes: dict[str, Shape]) -> bool:
    """Return whether cattrs can write the functions of a class, which are twice as fast.

    It wants the arguments of a generic class, which the shapes hold already, and takes two names
    of fields for arguments of its own.
    """
    return not getattr(kind, "__parameters__", ()) and not shapes.keys() & {"cl", "converter"}


def _unstructure(kind: type, shapes: dict[str, Shape]) -> Callable[[Any], dict[str, Any]]:
    if not _simple(kind, shapes):
        return lambda value: {n: shape.encode(getattr(value, n)) for n, shape in shapes.items()}
    from cattrs.gen import make_dict_unstructure_fn, override

    hooks: dict[str, Any] = {
        name: override(unstruct_hook=shape.encode, omit=False) for name, shape in shapes.items()
    }
    return make_dict_unstructure_fn(kind, _converter(), **hooks)


def _structure(
    kind: type, specs: list[FieldSpec], shapes: dict[str, Shape]
) -> Callable[[Any, Any], Any]:
    taken = [(spec.name, spec.argument, shapes[spec.name]) for spec in specs if spec.argument]
    if not _simple(kind, shapes):
        return lambda wire, _: kind(**{a: s.decode(wire[n]) for n, a, s in taken if n in wire})
    from cattrs.gen import make_dict_structure_fn, override

    hooks: dict[str, Any] = {
        name: override(struct_hook=_ignoring_type(shape.decode)) for name, _, shape in taken
    }
    return make_dict_structure_fn(kind, _converter(), _cattrs_detailed_validation=False, **hooks)


def _ignoring_type(decode: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda wire, _: decode(wire)


@functools.cache
def _converter() -> Any:
    # cattrs takes 80 ms to import, and only a process that defines jobs needs it.
    from cattrs import Converter

    return Converter(structure_fallback_factory=_unknown)


def _unknown(kind: Any) -> Any:
    """Refuse a type when it is looked up: some releases of cattrs wait for the first value."""
    from cattrs.errors import StructureHandlerNotFoundError

    raise StructureHandlerNotFoundError(f"Unsupported type: {kind!r}", type_=kind)


def _wire_fields(
    shapes: dict[str, Shape], needed: list[str], unknown: Shape | None
) -> Callable[[Any], Iterator[Part]]:
    def wire_parts(wire: Any) -> Iterator[Part]:
        if type(wire) is not dict:
            return
        for key, part in wire.items():
            shape = shapes.get(key, unknown)
            if shape is not None:
                yield f".{key}", part, shape
        for field in needed:
            if field not in wire:
                yield f".{field}", None, _MISSING

    return wire_parts


def required_keys(kind: Any, hints: dict[str, Any]) -> list[str]:
    """Return the keys that a TypedDict must have.

    Its own list is wrong where annotations are text, so what each key says of itself counts.
    """
    said = {key: typing.get_origin(hint) for key, hint in hints.items()}
    return [
        key
        for key, origin in said.items()
        if origin is typing.Required
        or (origin is not typing.NotRequired and key in kind.__required_keys__)
    ]


def typed_dict(kind: Any, shapes: dict[str, Shape], needed: list[str]) -> Shape:
    """Return the shape of a TypedDict: the keys it names and no others."""
    name = kind.__name__
    unknown = refusing(f"is no key of {name}; it has {', '.join(shapes) or 'none'}")

    def each(value: Any, direction: str) -> dict[str, Any]:
        if type(value) is not dict:
            raise expected(name, value)
        if not value.keys() <= shapes.keys() or any(key not in value for key in needed):
            raise Refusal(f"has other keys than {name}")
        return {key: getattr(shapes[key], direction)(part) for key, part in value.items()}

    fields = _wire_fields(shapes, needed, unknown)
    return Shape(
        name, lambda value: each(value, "encode"), lambda wire: each(wire, "decode"),
        frozenset({dict}), (dict,), fields, fields,
    )  # fmt: skip


def foreign(kind: Any, plain: Shape) -> Shape | None:
    """Return the shape of a type that cattrs knows and we do not (a Path, a deque), or None.

    It promises nothing about such a type, so each value is rebuilt at encode and compared.
    """
    from cattrs.errors import StructureHandlerNotFoundError

    converter = _converter()
    try:
        converter.get_structure_hook(kind)
    except (StructureHandlerNotFoundError, TypeError):
        return None
    name = getattr(kind, "__name__", str(kind))

    def encode(value: Any) -> Any:
        wire = plain.encode(converter.unstructure(value, unstructure_as=kind))
        back = converter.structure(wire, kind)
        if type(back) is not type(value) or back != value:
            raise expected(name, value)
        return wire

    def decode(wire: Any) -> Any:
        return converter.structure(wire, kind)

    return Shape(name, encode, decode, plain.kinds)
