"""One rank of the demo: `python -m lazyckpt.demo.rank SHARE`, a file of JSON."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
from collections.abc import Generator
from contextlib import closing
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from threading import Lock

import lazyckpt as lz
from lazyckpt.demo.training import Job, Tokens, lines_pipeline, tokenise
from lazyckpt.errors import RankMissing
from lazyckpt.executors.sharing.executor import shared
from lazyckpt.executors.sharing.meeting import SocketMeeting

ROWS = 64  # per rank and step
SAVES = 10  # steps from one state to the next


@dataclass(frozen=True)
class Share:
    """The task of one rank.

    Attributes:
        job: The text, and its order.
        rank: The number of this rank.
        size: The number of ranks.
        steps: The number of batches.
        state: The state to start from, of any number of ranks; None to start at the first line.
        killed_at: The step after which it kills itself, with no warning; 0 for never.
        place: The address, port and secret with which the ranks meet.
    """

    job: Job
    rank: int
    size: int
    steps: int
    state: str | None = None
    killed_at: int = 0
    place: tuple[str, int, str] = ("", 0, "")

    @property
    def pipeline(self) -> lz.Pipeline[list[Tokens]]:
        """The rows of this rank; each line is computed by one rank, which sends it to all."""
        return (
            lines_pipeline(self.job, counted)
            | lz.shard(num_shards=self.size, index=self.rank)
            | lz.batch(ROWS)
        )

    def to_json(self) -> str:
        return json.dumps({**asdict(self), "job": self.job.to_json()})

    @staticmethod
    def from_json(text: str) -> Share:
        found = json.loads(text)
        return Share(**{**found, "job": Job.from_json(found["job"])})


class _Calls:
    number, lock = 0, Lock()


def counted(line: bytes) -> Tokens:
    """Count a call, and tokenise."""
    with _Calls.lock:
        _Calls.number += 1
    return tokenise(line)


def digest(row: Tokens) -> str:
    return hashlib.sha256(row.tobytes()).hexdigest()[:12]


def batches(
    share: Share, executor: lz.Executor | None = None
) -> Generator[tuple[list[str], lz.Run[list[Tokens]]], None, None]:
    """Yield the digests of the rows of each step, and the run."""
    state = share.state and lz.rebase(lz.State.from_json(share.state), share.pipeline)
    with lz.run(share.pipeline, state or None, executor=executor) as run:
        for batch in islice(run, share.steps):
            yield [digest(row) for row in batch], run


def main() -> None:
    """Do the share in a file, and report each step on stdout."""
    share = Share.from_json(Path(sys.argv[1]).read_text("utf-8"))
    host, port, secret = share.place
    meeting = SocketMeeting(host, port, bytes.fromhex(secret), share.rank, share.size, 30.0)
    executor = shared(lz.threads, lz.threads(2), meeting, {"chunk_size": 32, "timeout": 30.0})
    try:
        with closing(batches(share, executor)) as steps:
            for step, (rows, run) in enumerate(steps, 1):
                print("rows", *rows)
                if step % SAVES == 0:
                    print("state", run.state.to_json())
                print("calls", _Calls.number, flush=True)
                if step == share.killed_at:
                    os.kill(os.getpid(), signal.SIGKILL)
    except RankMissing as error:
        print("lost", error, flush=True)


if __name__ == "__main__":
    main()
