"""One rank of a job, as a process: it prints its items, and the error that ends it."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

import lazyckpt as lz
from lazyckpt.executors.sharing.executor import shared
from lazyckpt.executors.sharing.meeting import SocketMeeting
from lazyckpt.executors.sharing.presence import Presence
from tests.helpers import until

SECRET = b"known to all ranks"


def tokens(n: int, kills: int = -1) -> list[int]:
    if n == kills:
        os.kill(os.getpid(), signal.SIGKILL)
    return [n] * (n % 7 + 1)


def pipeline(size: int, rank: int, count: int = 1_000, kills: int = -1) -> lz.Pipeline[Any]:
    documents = lz.source(range(count)) | lz.shuffle(seed=1) | lz.repeat()
    documents |= lz.map(partial(tokens, kills=kills))
    documents |= lz.filter(lambda document: len(document) != 3)
    rows = documents | lz.pack_first_fit(16, num_bins=4)
    return rows | lz.shard(num_shards=size, index=rank) | lz.batch(2)


def main(
    rank: int, size: int, port: int, steps: int, end: str = "", count: int = 1_000,
    timeout: float = 3.0, state: str | None = None, kills: int = -1, on_error: Any = "raise",
    host: str = "127.0.0.1", nodes: Sequence[Sequence[int]] = (), limit: float | None = None,
    waits: float = 0.0, busy: float = 0.0, does: str = "", is_closed: bool = True,
    pace: float = 0.01, begun: threading.Event | None = None,
) -> None:  # fmt: skip
    presence = Presence((host, port), SECRET, rank, 30.0)
    each_node = tuple(map(tuple, nodes))
    meeting = SocketMeeting(host, port, SECRET, rank, size, 30.0, each_node, presence)
    more = {"chunk_size": 4, "timeout": timeout}
    workers = lz.processes(2, timeout=limit) if kills >= 0 else lz.threads(2)
    executor = shared(main, workers, meeting, more)
    time.sleep(waits)
    try:
        own = pipeline(size, rank, count, kills)
        run = lz.run(own, state, executor=executor, on_error=on_error)
        with run if is_closed else nullcontext():
            for step in range(steps):
                item = next(run)
                if begun is not None:
                    begun.set()
                print(json.dumps([repr(item), run.state.to_json()]), flush=True)
                if end and step == steps - 1:
                    print(json.dumps([end, time.time()]), flush=True)
                    if does == "closes":  # files in turn, as the system does as a process dies
                        os.closerange(3, 1024)
                        time.sleep(1.5)  # in which its reader, if that errs, says goodbye
                    if does == "forks":
                        warnings.simplefilter("ignore")  # of Python 3.12: there are threads
                        if not os.fork():
                            signal.pause()  # until it is killed
                    os.kill(os.getpid(), getattr(signal, end))
                time.sleep(pace if step else max(pace, busy))
    except Exception as error:
        text = "\n".join([str(error), *getattr(error, "__notes__", ())])
        print(json.dumps([type(error).__name__, text, time.time()]), flush=True)


if __name__ == "__main__":
    told = json.loads(sys.argv[1])
    match told.pop("where", "main"):
        case "main":
            main(**told)
        case "thread":  # which goes on after the main thread has ended
            begun = threading.Event()
            threading.Thread(target=main, kwargs={**told, "begun": begun}).start()
            begun.wait()
        case "ending":  # before it is connected to others
            threading.Thread(target=main, kwargs=told).start()
            names = ["lazyckpt-meeting"] * 3  # threads: it is asked, waits for others, and listens
            until(lambda: [t.name for t in threading.enumerate() if t.name in names] == names)
        case "child":
            child = multiprocessing.get_context("fork").Process(target=main, kwargs=told)
            child.start()
            child.join()
