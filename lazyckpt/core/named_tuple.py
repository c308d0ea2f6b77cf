"""`NamedTuple`, for all of the package: that of `typing`, in less of the time of an import.

`typing` compiles each annotation, which nobody here asks for.
"""

from __future__ import annotations

from collections import namedtuple
from typing import TYPE_CHECKING, Any, Generic

if TYPE_CHECKING:
    from typing import NamedTuple as NamedTuple
else:

    class _Meta(type):
        def __new__(cls, name: str, bases: tuple[type, ...], body: dict[str, Any]) -> type:
            fields = body.get("__annotations__", {})
            defaults = [body.pop(field) for field in fields if field in body]
            made = namedtuple(name, fields, defaults=defaults, module=body.pop("__module__"))
            made.__new__.__annotations__ = fields
            for key, value in body.items():
                setattr(made, key, value)
            if Generic in bases:
                made.__bases__ = (tuple, Generic)
                made.__class_getitem__ = classmethod(Generic.__class_getitem__.__func__)
                made.__init_subclass__()
            return made

    NamedTuple = type.__new__(_Meta, "NamedTuple", (), {})
