"""`control`: a value that stages take as an argument, and that a run may change."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple, TypeVar

from lazyckpt.core.checks import Shown, brief, checked, short
from lazyckpt.core.frozen import Frozen
from lazyckpt.core.user_state import Own, freeze, storable

T = TypeVar("T")


class Since(NamedTuple):
    """From which of a stage's items on a control has a value: a number, in an epoch."""

    epoch: int
    item: int
    value: Own


class Control(Frozen, Shown):
    """What `control` makes: a name, the value at first, and in a run what it was changed to.

    Attributes:
        initial: The value at first.
        name: The name.
        stage: The number of the stage that takes it, in the pipeline of a run.
        changes: The values that it was changed to, for that stage, in the order of its items.
    """

    initial: Any
    name: str
    stage: str
    changes: tuple[Since, ...]

    def __init__(
        self, initial: Any, name: str, stage: str = "", changes: tuple[Since, ...] = ()
    ) -> None:
        vars(self).update(initial=initial, name=name, stage=stage, changes=changes)

    def __eq__(self, other: object) -> bool:
        return vars(self) == vars(other) if isinstance(other, Control) else NotImplemented

    def __hash__(self) -> int:
        return hash((self.name, self.stage, self.changes))  # not the value, which may be a list

    def __repr__(self) -> str:
        return f"control({brief(self.initial, self.name)}, name={self.name!r})"

    @property
    def first(self) -> Own:
        """The value at first, frozen."""
        return freeze(self.initial, "control")

    def at(self, stage: str, changes: tuple[Since, ...]) -> Control:
        """The same in a stage of a run's pipeline."""
        return Control(self.initial, self.name, stage, changes)


def control(initial: T, *, name: str) -> T:
    """A value that stages take as an argument, and that `Run.set` changes while a run goes on.

    `mix` takes one for its weights, `token_batch` for `max_tokens`, and `map`,
    `filter` and `take_while` for the arguments of their function. A stage uses
    the value that holds for the number of its item, whoever asks for it again:
    a resume, a replay and another rank see the same changes at the same items.

    Several stages may take one control, or some of one name and one value.

    Args:
        initial: The value at first: None, a bool, int, float, str, or lists, dicts and
            tuples of them. It is checked as the argument is.
        name: What `Run.set` calls it, of 1 to 40 characters.

    Returns:
        What stands for the value. To a type checker it is one.

    >>> import lazyckpt as lz
    >>> least = lz.control(3, name="least")
    >>> run = lz.run(lz.source(range(10)) | lz.filter(int.__le__, least))
    >>> first = next(run), next(run)
    >>> run.set("least", 8)
    >>> first, list(run)
    ((3, 4), [8, 9])
    """
    found: Any = Control(
        checked("control", "initial", initial, storable), checked("control", "name", name, short)
    )
    return found  # type: ignore[no-any-return]  # to a type checker it is the value


def applying(fn: Callable[..., T], args: tuple[Any, ...]) -> Callable[[Any], T]:
    """A function of one item, which comes behind what else it is called with."""
    return partial(fn, *args) if args else fn


def controls_in(value: Any) -> Iterator[Control]:
    """The controls that an argument is, or has in its place among several."""
    if type(value) is Control:
        yield value
    elif type(value) is tuple:
        yield from (each for each in value if type(each) is Control)


def replaced(value: Any, made: Callable[[Control], Any]) -> Any:
    """An argument, its controls replaced by what is made of them."""
    if type(value) is Control:
        return made(value)
    if type(value) is tuple:
        return tuple([made(v) if type(v) is Control else v for v in value])
    return value
