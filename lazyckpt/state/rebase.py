"""How a state is checked against a pipeline, and how it follows a change of it: `rebase`."""

from __future__ import annotations

from lazyckpt.core.call import Chain, runnable
from lazyckpt.errors import InvalidState, StateMismatch
from lazyckpt.state.carried import carried
from lazyckpt.state.fields import Rebased
from lazyckpt.state.mismatch import difference
from lazyckpt.state.progress import given
from lazyckpt.state.state import AnyState, State, as_state


def matching(state: State, chain: Chain) -> State:
    """The state, if it belongs to the chain; a `StateMismatch` that shows the difference if not."""
    differences = difference(state.stages, chain.entries)
    if not differences:
        return state
    remedy = _remedy(state, chain)
    raise StateMismatch(
        "the state belongs to another pipeline:\n"
        f"{differences}"
        f"{remedy}strict=False takes it as it is"
    )


def _remedy(state: State, chain: Chain) -> str:
    try:
        carried(state.stages, state.position, chain, items=state.own_items)
    except InvalidState:
        return ""
    return "lz.rebase(state, pipeline) carries it over; "


def rebase(state: AnyState, pipeline: Chain) -> State:
    """The state, carried over to a changed pipeline, where that has a meaning. Reads no data.

    Items delivered so far stay delivered, and the rest comes in the new
    pipeline's shape. What may change:

    - the size of batches, the number of shards, the count of a `repeat`
    - functions and what they are called with, and stages of functions, which may be
      inserted or removed: from here on
    - `without` inserted, or its ranges: what it leaves out from here on
    - other stages inserted: they begin here, as at the beginning of an epoch
    - the weights of a `mix` and the budget of `token_batch`, which hold from here on; the
      pipelines of a `mix`, changed as here, added or removed, and of `lanes`, changed as here
    - the files of a listing or of a reader, behind which others were appended: they come
      behind the rest, unless a stage orders whole epochs, such as `shuffle`
    - seeds, of what draws for each item by itself at any time, and of what shuffles between
      two epochs

    The state says in `rebased` that it was: numbers of items count what was
    delivered, and where the new pipeline stands may be another number of its own.

    What `on_error="skip"` has left out is carried over. Where stages or the
    position change, that of a window which is re-read counts once more.

    Args:
        state: A state of the pipeline as it was.
        pipeline: The pipeline as it is.

    Raises:
        StateMismatch: With the reason, for every other change, and where a stage
            behind holds what the changed one gave, so that a resume would take it again.

    >>> import lazyckpt as lz
    >>> small, large = (lz.source(range(6)) | lz.batch(n) for n in (2, 4))
    >>> state, first = lz.step(small, lz.init(small))
    >>> list(lz.run(large, rebase(state, large)))
    [[2, 3, 4, 5]]
    """
    found, pipeline = as_state(state), runnable("rebase", pipeline)
    items = found.own_items
    position = carried(found.stages, found.position, pipeline, items=items)
    if found.stages == pipeline.entries:
        return found
    names = [entry.name for entry in found.stages]
    is_like = position == found.position and names == [call.name for call in pipeline.calls]
    return found._replace(
        stages=pipeline.entries,
        position=position,
        skipped=found.skipped if is_like else found.skipped.renumbered(),
        rebased=Rebased(found.items, given(pipeline.machine, position)),
    )
