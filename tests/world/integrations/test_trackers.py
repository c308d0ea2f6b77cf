"""States through the real trackers, on disk: loaded states are equal, and resume."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from itertools import count, islice
from pathlib import Path
from re import escape
from subprocess import run as execute
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lazyckpt as lz
from lazyckpt.integrations.trackers import NoState, load_state, log_state
from lazyckpt.testing import strategies

pytestmark = [  # MLflow and Aim use what SQLAlchemy is about to remove
    pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:The ``declarative_base:DeprecationWarning"),
]

ROWS = {f"a_column_with_a_long_name_{number}": list(range(50)) for number in range(10)}


BIG = tuple(2**bits for bits in (64, 700, 1100))


def tally(seen: tuple[int, ...], row: Any) -> tuple[tuple[int, ...], Any]:
    return tuple(3 * n for n in seen), (seen, row)


TEN = (
    lz.columns(**ROWS) | lz.shuffle(seed=2**200) | lz.repeat() | lz.shard(num_shards=2, index=1)
    | lz.shuffle(40, seed=2**64 + 1) | lz.map(dict.items) | lz.flat_map(list)
    | lz.scan(tally, BIG) | lz.take(10**18) | lz.batch(3)
)  # fmt: skip


# --- the trackers ---


@dataclass(frozen=True)
class Place:
    """A run of a tracker that is under way."""

    run: Any
    again: str  # code that opens it in a different process
    end: Callable[[], Any]


def mlflow_place(folder: Path) -> Place:
    mlflow = import_module("mlflow")
    mlflow.set_experiment("test")
    run = mlflow.start_run()
    return Place(run, f"import_module('mlflow').get_run({run.info.run_id!r})", mlflow.end_run)


def wandb_place(folder: Path) -> Place:
    wandb = import_module("wandb")
    quiet = wandb.Settings(silent=True, console="off", x_disable_stats=True)
    run = wandb.init(mode="offline", project="test", dir=folder, settings=quiet)

    def end() -> None:
        run.finish()
        wandb.teardown()  # its background process

    return Place(run, repr(str(Path(run.dir).parent)), end)


def trackio_place(folder: Path) -> Place:
    trackio = import_module("trackio")
    run = trackio.init(project=folder.name, embed=False, auto_log_gpu=False)
    return Place(run, f"import_module('trackio').Api().runs({folder.name!r})[0]", trackio.finish)


def aim_place(folder: Path) -> Place:
    run = aim_run(folder)
    again = f"import_module('aim').Run({run.hash!r}, repo={str(folder)!r}, read_only=True)"
    return Place(run, again, run.close)


def aim() -> Any:
    if sys.version_info >= (3, 13):
        pytest.importorskip("aim", reason="Aim has no wheel for this Python")
    return import_module("aim")


def aim_run(folder: Path) -> Any:
    options = {"system_tracking_interval": None, "capture_terminal_logs": False}
    return aim().Run(repo=str(folder), log_system_params=False, **options)


def tensorboard_place(folder: Path) -> Place:
    writer = import_module("torch.utils.tensorboard").SummaryWriter(folder)
    return Place(writer, repr(str(folder)), writer.close)


def dvclive_place(folder: Path) -> Place:
    live = import_module("dvclive").Live(str(folder), save_dvc_exp=False, dvcyaml=None)
    return Place(live, repr(str(folder)), live.end)


PLACES: dict[str, Callable[[Path], Place]] = {
    "mlflow": mlflow_place,
    "wandb": wandb_place,
    "trackio": trackio_place,
    "aim": aim_place,
    "tensorboard": tensorboard_place,
    "dvclive": dvclive_place,
}


@pytest.fixture(scope="module")
def offline(tmp_path_factory: Any) -> Iterator[None]:
    """All that a tracker writes goes to a folder that is thrown away, and nothing out of here."""
    folder = tmp_path_factory.mktemp("trackers")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{folder / 'mlflow.db'}")
        patch.setenv("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
        patch.setenv("WANDB_MODE", "offline")
        patch.setenv("WANDB_ERROR_REPORTING", "false")
        patch.setenv("TRACKIO_DIR", str(folder / "trackio"))
        patch.setenv("DVC_NO_ANALYTICS", "true")
        patch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
        patch.setenv("MLFLOW_EXPERIMENT_ID", "0")  # which MLflow sets, and processes inherit
        patch.delenv("MLFLOW_EXPERIMENT_ID")
        yield


@pytest.fixture(scope="module", params=PLACES)
def place(request: pytest.FixtureRequest, offline: None, tmp_path_factory: Any) -> Iterator[Place]:
    made = PLACES[request.param](tmp_path_factory.mktemp(request.param))
    with pytest.raises(NoState, match="no state was logged in "):
        load_state(made.run)
    yield made
    made.end()


STEPS = count(1)


# --- there and back ---


def own_values() -> st.SearchStrategy[Any]:
    """Values that a state of the user's own may contain."""
    numbers = st.integers(-(2**200), 2**200) | st.floats(allow_nan=False) | st.just(2.0)
    leaves = numbers | st.booleans() | st.none() | st.text(max_size=9)
    return st.recursive(
        leaves,
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.tuples(inner, inner)
            | st.dictionaries(st.text(max_size=3), inner, max_size=3)
        ),
        max_leaves=12,
    )


@given(data=st.data())
@settings(max_examples=20)
def test_any_state_comes_back_equal(place: Place, data: st.DataObject) -> None:
    if data.draw(st.booleans()):
        run = lz.run(data.draw(strategies.pipelines()))
        list(islice(run, data.draw(st.integers(0, 6))))
        state = run.state
    else:
        own = data.draw(own_values())
        state = lz.state_at([1, 2] | lz.scan(lambda seen, item: (own, item), 0), 1)
    step = next(STEPS)
    log_state(place.run, state, step)
    assert load_state(place.run, step).to_json() == state.to_json()


def test_ten_stages_resume_in_another_process(place: Place) -> None:
    run = lz.run(TEN)
    kept = {}
    for step in [next(STEPS), next(STEPS), next(STEPS), 2**53 + 1]:
        list(islice(run, 7))
        log_state(place.run, run, step)
        kept[step] = run.state
    assert 900 < len(run.state.to_json()) < 1300
    code = (
        "from importlib import import_module\n"
        "from lazyckpt.integrations.trackers import load_state\n"
        f"where = {place.again}\n"
        f"for step in {[*kept, None]}: print('>', load_state(where, step).to_json())\n"
    )
    done = execute([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    read = [line[2:] for line in done.stdout.splitlines() if line.startswith("> ")]
    *each, last = map(lz.State.from_json, read)
    assert dict(zip(kept, each, strict=True)) == kept
    assert last == kept[2**53 + 1]
    assert list(islice(lz.run(TEN, last), 9)) == list(islice(run, 9))
    first = next(iter(kept))
    assert load_state(place.run, first) == kept[first]


@pytest.mark.parametrize("name", ["trackio", "aim", "tensorboard"])  # they write in the background
def test_a_state_outlives_its_process(name: str, offline: None, tmp_path: Path) -> None:
    if name == "aim":
        aim()
    code = (
        f"import os, pathlib, signal, sys; sys.path.insert(0, {str(Path(__file__).parents[3])!r})\n"
        "from tests.world.integrations.test_trackers import PLACES, TEN, log_state, lz\n"
        f"place = PLACES[{name!r}](pathlib.Path({str(tmp_path)!r}))\n"
        "log_state(place.run, lz.state_at(TEN, 5), 5)\n"
        "print('>', place.again, flush=True); os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = execute([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == -9, done.stderr
    again = done.stdout.rpartition("> ")[2]
    assert load_state(eval(again)) == lz.state_at(TEN, 5)


def test_the_state_of_a_tracked_run_comes_back(place: Place) -> None:
    tracked = lz.tracked(lz.run(lz.source(range(9))), max_in_flight=4)
    tracked.ack([next(tracked)[0] for _ in range(3)][1])
    log_state(place.run, tracked, 1)
    assert load_state(place.run, 1) == tracked.state


def test_a_long_state_is_kept_whole(place: Place) -> None:
    own = ['"\\\t\n,é' * 5_000, [2.0] * 1000]
    state = lz.state_at([1] | lz.scan(lambda seen, item: (own, item), 0), 1)
    step = next(STEPS)
    log_state(place.run, state, step)
    assert load_state(place.run, step) == state


def test_of_states_with_one_step_the_later_counts(place: Place) -> None:
    step = next(STEPS)
    for form in (lz.init(TEN), lz.state_at(TEN, 2).to_json(), lz.state_at(TEN, 1).to_dict()):
        log_state(place.run, form, step)
    assert load_state(place.run, step) == lz.state_at(TEN, 1)
    log_state(place.run, lz.init(TEN), 0)
    assert load_state(place.run, 0) == lz.init(TEN)


def test_a_step_without_a_state(place: Place) -> None:
    step, missing = next(STEPS), next(STEPS)
    log_state(place.run, lz.init(TEN), step)
    with pytest.raises(NoState, match=f"no state was logged at step {missing} of .*; there are "):
        load_state(place.run, missing)


def test_what_else_is_logged_stays_and_does_not_matter(offline: None, tmp_path: Path) -> None:
    live = dvclive_place(tmp_path).run
    for step in range(3):
        live.log_metric("loss", 0.5)
        log_state(live, lz.state_at(TEN, step), 10 * step)
        live.next_step()
    live.end()
    assert live.summary["step"] == 2
    assert (tmp_path / "plots/metrics/loss.tsv").read_text().split()[2::2] == ["0", "1", "2"]
    assert load_state(tmp_path) == load_state(tmp_path, 20) == lz.state_at(TEN, 2)
    resumed = import_module("dvclive").Live(
        str(tmp_path), resume=True, save_dvc_exp=False, dvcyaml=None
    )
    log_state(resumed, lz.state_at(TEN, 3), 30)
    assert load_state(resumed, 10) == lz.state_at(TEN, 1)
    with (tmp_path / "plots/metrics/lazyckpt.tsv").open("a") as file:
        file.write('40\t"{""lazyc')  # a process that was killed while it wrote
    assert load_state(resumed) == lz.state_at(TEN, 3)
    with pytest.raises(lz.PipelineError, match="DVCLive can read 131,072 characters, the state"):
        log_state(resumed, lz.init([1] | lz.scan(tally, "x" * 2**17)), 50)
    resumed.end()


def test_wandb_syncs_the_file(offline: None, tmp_path: Path) -> None:
    place = wandb_place(tmp_path)
    log_state(place.run, lz.state_at(TEN, 2), 7)
    place.end()
    (folder,) = (tmp_path / "wandb").glob("offline-run-*")
    (records,) = folder.glob("run-*.wandb")  # what `wandb sync` goes by
    assert b"lazyckpt/7.json" in records.read_bytes()
    assert load_state(folder) == load_state(place.run) == lz.state_at(TEN, 2)
    with pytest.raises(Exception, match="is finished"):
        log_state(place.run, lz.init(TEN), 8)


# --- which run is meant ---


def test_the_id_of_a_run_of_mlflow_is_enough(offline: None, tmp_path: Path) -> None:
    place = mlflow_place(tmp_path)
    number = place.run.info.run_id
    with pytest.raises(NoState, match=f"no state was logged in '{number}'"):
        load_state(number)
    log_state(place.run, lz.state_at(TEN, 2), 7)
    import_module("mlflow").log_text("next to the states", "lazyckpt/notes.txt")
    assert load_state(number) == load_state(f"runs:/{number}") == lz.state_at(TEN, 2)
    place.end()
    assert load_state(number, 7) == lz.state_at(TEN, 2)
    with pytest.raises(NoState, match="no state was logged at step 8"):
        load_state(number, 8)
    with pytest.raises(NoState, match=f"MLflow has no run {'0' * 32} at 'sqlite://"):
        load_state("0" * 32)
    with pytest.raises(lz.ArgumentError, match="the id of a run is for load_state only, got"):
        log_state(number, lz.init(TEN), 8)


@pytest.mark.parametrize("name", ["", "files", "files/lazyckpt/.."])
def test_the_folder_of_a_run_of_wandb_is_enough(name: str, offline: None, tmp_path: Path) -> None:
    place = wandb_place(tmp_path)
    folder = Path(place.run.dir).parent
    with pytest.raises(NoState, match="no state was logged in "):
        load_state(folder / name.partition("/")[0])
    for step in (7, 8):
        log_state(place.run, lz.state_at(TEN, step), step)
    where = folder / name
    assert load_state(where) == load_state(str(where)) == lz.state_at(TEN, 8)
    assert load_state(folder.parent / "latest-run" / name) == lz.state_at(TEN, 8)
    place.end()
    assert load_state(where, 7) == lz.state_at(TEN, 7)


def test_a_module_or_client_is_its_run_under_way(offline: None, tmp_path: Path) -> None:
    calls = {"mlflow": "mlflow.start_run()", "wandb": "wandb.init()", "trackio": "trackio.init()"}
    for name, call in calls.items():
        module = import_module(name)
        nowhere = [module, module.MlflowClient()] if name == "mlflow" else [module]
        for where in nowhere:
            with pytest.raises(lz.PipelineError, match=f"is active: {escape(call)} starts one"):
                log_state(where, lz.init(TEN), 0)
        place = PLACES[name](tmp_path)
        for step, where in enumerate(nowhere):
            log_state(where, lz.state_at(TEN, step), step)
            assert load_state(where) == load_state(place.run) == lz.state_at(TEN, step)
        place.end()
        with pytest.raises(lz.PipelineError, match=escape(call)):
            load_state(module)


def test_runs_of_a_class_of_your_own(tmp_path: Path) -> None:
    class Writer(import_module("torch.utils.tensorboard").SummaryWriter):  # type: ignore[misc]
        pass

    with Writer(tmp_path) as writer:
        log_state(writer, lz.init(TEN), 3)
    assert load_state(writer) == load_state(str(tmp_path)) == load_state(tmp_path) == lz.init(TEN)


def test_a_run_of_aim_that_is_read_only_or_closed(offline: None, tmp_path: Path) -> None:
    run = aim_run(tmp_path)
    log_state(run, lz.init(TEN), 3)
    reader = aim().Run(run.hash, repo=str(tmp_path), read_only=True)
    assert load_state(reader) == lz.init(TEN)
    with pytest.raises(lz.PipelineError, match=f"the run {run.hash} is read-only: aim.Run"):
        log_state(reader, lz.init(TEN), 4)
    run.close()
    for use in (lambda: log_state(run, lz.init(TEN), 4), lambda: load_state(run)):
        with pytest.raises(lz.PipelineError, match=f"the run {run.hash} is closed: aim.Run"):
            use()


def is_refused(stranger: Any) -> None:
    for use in (lambda x: log_state(x, lz.init(TEN), 1), load_state):
        with pytest.raises(lz.ArgumentError, match="expected a run of a tracker, got") as got:
            use(stranger)
        assert " ".join(repr(stranger).split())[:50] in str(got.value)
        assert all(name in str(got.value) for name in PLACES)


def test_what_of_aim_is_no_run() -> None:
    is_refused(aim())
    is_refused(aim().Text("a"))


def test_what_is_no_run(offline: None, tmp_path: Path) -> None:
    strangers = [None, 3, b"run", object, Path, sys, lz.run(TEN), import_module("dvclive")]
    strangers += [import_module("torch.utils.tensorboard"), import_module("wandb").Settings()]
    strangers += [import_module("mlflow").entities.RunTag("a", "b"), import_module("trackio").Api()]
    for stranger in strangers:
        is_refused(stranger)
    with pytest.raises(lz.ArgumentError, match="a path is for load_state only, got 'runs'"):
        log_state("runs", lz.init(TEN), 1)
    for folder in (tmp_path, tmp_path / "none", str(tmp_path)):
        with pytest.raises(NoState, match=r"no run of TensorBoard, W&B or DVCLive"):
            load_state(folder)


def test_what_is_no_step_and_no_state(tmp_path: Path) -> None:
    with tensorboard_place(tmp_path).run as writer:
        for step in (-1, 2.0, True, "3", 2**63):
            with pytest.raises(lz.ArgumentError, match="log_state: step must be an int"):
                log_state(writer, lz.init(TEN), step)  # type: ignore[arg-type]
            with pytest.raises(lz.ArgumentError, match="load_state: step must be an int"):
                load_state(writer, step)  # type: ignore[arg-type]
        for state in (None, 3, "{}", {}, lz.init(TEN).to_json()[:-9], TEN):
            with pytest.raises(lz.InvalidState):
                log_state(writer, state, 1)  # type: ignore[arg-type]
        with pytest.raises(NoState):
            load_state(writer)
        writer.add_text("lazyckpt", lz.init(TEN).to_json().replace("7", "8"), 1)
        with pytest.raises(lz.InvalidState):
            load_state(writer)


# --- trackers that aren't installed ---


def test_a_missing_package_names_its_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with tensorboard_place(tmp_path).run as writer:
        log_state(writer, lz.init(TEN), 1)
    reader = "tensorboard.backend.event_processing.event_accumulator"
    monkeypatch.setitem(sys.modules, reader, None)
    message = r'the package tensorboard is not installed; pip install "lazyckpt\[tensorboard\]"'
    with pytest.raises(lz.ArgumentError, match=message):
        load_state(tmp_path)


def test_a_folder_of_runs_is_no_package(tmp_path: Path) -> None:
    (tmp_path / "wandb").mkdir()
    spec = PathFinder.find_spec("wandb", [str(tmp_path)])
    assert spec is not None
    folder = module_from_spec(spec)  # the result of `import wandb` if W&B isn't installed
    with pytest.raises(
        lz.ArgumentError, match=r'a folder of that .*; pip install "lazyckpt\[wandb\]"'
    ):
        log_state(folder, lz.init(TEN), 1)


def test_importing_brings_no_tracker() -> None:
    code = "import sys, lazyckpt.integrations.trackers; print(*sys.modules)"
    done = execute([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {*PLACES, "torch"} & set(done.stdout.split())
