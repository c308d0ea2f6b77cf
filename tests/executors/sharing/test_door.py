"""Places where ranks meet, and processes around them: stopped, forked, without open files."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from subprocess import PIPE

from tests.executors.faults import script
from tests.executors.sharing.ranks import place
from tests.executors.sharing.test_meeting import closed, joined
from tests.helpers import in_fork

STOPPED = """
import sys, threading
from lazyckpt.executors.sharing.link import Reach
from lazyckpt.executors.sharing.meeting import SocketMeeting
from lazyckpt.executors.sharing.meeting_place import MeetingPlace

place = MeetingPlace("127.0.0.1", b"secret", 2.0)

def join(rank):
    meeting = SocketMeeting("127.0.0.1", place.port, b"secret", rank, 2, 2.0)
    links.append(meeting.join({}, Reach(1, 1), lambda: None))

links = []
ranks = [threading.Thread(target=join, args=[rank]) for rank in range(2)]
ranks[0].start()
print("waits", flush=True)
sys.stdin.readline()
ranks[1].start()
for each in ranks:
    each.join()
for link in links:
    threading.Thread(target=link.close).start()
print(len(links), flush=True)
place.close()
"""


def test_the_time_while_ranks_that_meet_are_stopped_is_none() -> None:
    command = [sys.executable, "-c", STOPPED]
    with subprocess.Popen(command, stdin=PIPE, stdout=PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "waits\n"
        time.sleep(0.5)  # in which the first rank comes
        process.send_signal(signal.SIGSTOP)
        time.sleep(4)  # longer than the ranks and the place have
        process.send_signal(signal.SIGCONT)
        time.sleep(0.5)  # in which the place looks at the clock
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.read() == "2\n"


FULL = """
import os, resource, socket, threading
from lazyckpt.executors.sharing.link import Reach
from lazyckpt.executors.sharing.meeting import SocketMeeting
from lazyckpt.executors.sharing.meeting_place import MeetingPlace

place = MeetingPlace("127.0.0.1", b"secret", 20.0)
resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
strangers = [socket.socket() for _ in range(3)]
held = []
try:
    while True:
        held.append(os.dup(0))
except OSError:
    for each in strangers:
        each.connect(("127.0.0.1", place.port))
threading.Event().wait(0.5)
for each in held:
    os.close(each)

def join(rank):
    meeting = SocketMeeting("127.0.0.1", place.port, b"secret", rank, 2, 20.0)
    meeting.join({}, Reach(1, 1), lambda: None).close()
    print("joined\\n", end="")

ranks = [threading.Thread(target=join, args=[rank]) for rank in range(2)]
for each in ranks:
    each.start()
for each in ranks:
    each.join()
for each in strangers:
    each.close()
place.close()
"""


def test_a_place_outlives_the_limit_of_open_files(tmp_path: Path) -> None:
    assert script(tmp_path, FULL) == "joined\n" * 2


def test_a_fork_of_the_place_is_not_the_place() -> None:
    """Nor does it keep connections."""
    with place() as found:
        links = joined(found.port, 2)
        in_fork(found.close)
        again = joined(found.port, 2)
        assert [link.rank for link in again] == [0, 1]
        closed(links)
        closed(again)
