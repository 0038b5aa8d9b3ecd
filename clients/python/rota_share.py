"""A share of the objects for a program that `rota run` has started, with Python's standard library only. Python 3.9 or
later, on Linux.

    share = Share(load=load, opened=opened, drop=drop)
    share.start()                     # threads call the functions for each slot that comes or goes
    ...
    slot = share.begin(slot_number)   # before work on an object of that slot; None: it is not this program's now
    if slot:
        try:
            reconcile(namespace, name)
        finally:
            share.end(slot)

load(slot) lists the slot's objects, by slot.selectors[kind], and returns when the program knows all of them. It is called
again if it fails, and when others may have changed the objects. opened(slot) queues them, and slot.gone. drop(slot) forgets
them. They are called in threads, one after the other for each slot.

The process ends itself when it may no longer work on an open slot: its member could not renew its Lease in time, or
`rota run` has gone away; and when one of the functions but load fails.

https://github.com/rota-dev/rota: docs/run.md specifies the protocol.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
import time
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Optional, Tuple

__all__ = ["Deletion", "Share", "Slot"]

VERSION = 1
LOST = 75  # the exit code of a program that lost its share
FAILED = 1  # the exit code of a program one of whose functions has failed
RETRY = 1.0  # seconds before load is called again after it raised an exception

log = logging.getLogger("rota")


class Deletion(NamedTuple):
    """An object that was deleted, and that somebody has to clean up after."""

    kind: str
    namespace: str
    name: str


class Slot:
    """A slot of this program. Its number is from 0 to Share.slots - 1."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.selectors: Dict[str, str] = {}  # label selectors by kind
        self.hashes: Tuple[int, int] = (0, 0)  # the first and the last hash
        self.epoch = 0  # rises each time the slot goes to another member
        self.gone: List[Deletion] = []  # that the former owner left
        self.open = False
        self._load = 0  # the seq of the last load, 0 once the slot was shut
        self._drain = 0  # the seq of a drain that is to be answered
        self._flights = 0


class Share:
    """The share of this process. Its methods may be called by any thread.

    load(slot), opened(slot) and drop(slot) are as in the module's text. left(slot), which may be left out, returns the
    deletions in a drained slot that this program knows of and has not finished.
    """

    def __init__(
        self,
        load: Callable[[Slot], None],
        opened: Callable[[Slot], None],
        drop: Callable[[Slot], None],
        left: Callable[[Slot], Iterable[Deletion]] = lambda slot: (),
        path: Optional[str] = None,
    ) -> None:
        self._load, self._opened, self._drop, self._left = load, opened, drop, left
        self._path = path or os.environ.get("ROTA_SHARE", "")
        if not self._path:
            raise ValueError("ROTA_SHARE is not set: start the program with rota run NAME -- 'ROTA_SHARE={{.Share}}' ...")
        self._lock = threading.Lock()
        self._sends = threading.Lock()
        self._all: Dict[int, Slot] = {}
        self._jobs: Dict[int, List[Callable[[], None]]] = {}  # what is to be called, in turn in each slot
        self._deadline = float("inf")  # on time.monotonic()
        self.slots = 0  # how many there are
        self.kinds: List[str] = []

    def start(self) -> None:
        """Connects, and returns after the first message."""
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(self._path)
        lines = self._socket.makefile("rb")
        hello = json.loads(lines.readline() or b'{"type":"nothing"}')
        if hello["type"] != "hello" or hello.get("version") != VERSION:
            raise ConnectionError(f"this client speaks version {VERSION} of the protocol; the first message was {hello}")
        self.slots, self.kinds = hello["slots"], hello["kinds"]
        threading.Thread(target=self._read, args=(lines,), name="rota-share", daemon=True).start()
        threading.Thread(target=self._watch, name="rota-deadline", daemon=True).start()

    def begin(self, number: int) -> Optional[Slot]:
        """Begins work in a slot, which does not move until end is called with what this returns. Returns None if the
        program must not work there: then forget the key, as it comes again when the slot is opened."""
        with self._lock:
            slot = self._all.get(number)
            if slot is None or not slot.open or slot._drain or time.monotonic() >= self._deadline:
                return None
            slot._flights += 1
            return slot

    def end(self, slot: Slot) -> None:
        """Ends work that begin has begun."""
        with self._lock:
            slot._flights -= 1
        self._drained(slot)

    def _read(self, lines: Any) -> None:
        line = b""
        try:
            for line in lines:
                self._receive(json.loads(line))
        except Exception:  # the program must not go on without messages
            log.exception("cannot handle %r", line)
        self._end("there are no more messages from rota")

    def _receive(self, m: Dict[str, Any]) -> None:
        kind = m["type"]
        if kind == "deadline":
            self._deadline = m["monotonic"]
            return
        if kind not in ("warm", "load", "open", "drain", "shut"):
            return  # of a later version
        with self._lock:
            slot = self._all.get(m["slot"])
            if slot is None:
                slot = self._all[m["slot"]] = Slot(m["slot"])
            if kind == "load":
                slot._load = m["seq"]
                slot.selectors = m.get("selectors", {})
                slot.hashes = (int(m["hashes"][0], 16), int(m["hashes"][1], 16))
                slot.gone = [Deletion(g["kind"], g.get("namespace", ""), g["name"]) for g in m.get("gone", ())]
            elif kind == "open":
                slot.open, slot.epoch, slot._drain = True, m["epoch"], 0
            elif kind == "drain":
                slot._drain = m["seq"]
            elif kind == "shut":
                del self._all[slot.number]
                slot.open, slot._load = False, 0
        if kind == "warm":
            self._answer("warmed", slot, m["seq"])  # load lists
        elif kind == "load":
            self._later(slot, lambda: self._loading(slot, m["seq"]))
        elif kind == "open":
            self._later(slot, lambda: self._opened(slot))
        elif kind == "drain":
            self._drained(slot)
        else:
            self._later(slot, lambda: self._drop(slot))

    def _later(self, slot: Slot, job: Callable[[], None]) -> None:
        """Does a job after the others of the slot."""
        with self._lock:
            jobs = self._jobs.setdefault(slot.number, [])
            jobs.append(job)
            idle = len(jobs) == 1
        if idle:
            threading.Thread(target=self._work, args=(jobs,), daemon=True).start()

    def _work(self, jobs: List[Callable[[], None]]) -> None:
        while True:
            try:
                jobs[0]()
            except Exception:
                self._failed()
            with self._lock:
                jobs.pop(0)
                if not jobs:
                    return

    def _loading(self, slot: Slot, seq: int) -> None:
        while slot._load == seq:
            try:
                self._load(slot)
                self._answer("loaded", slot, seq)
                return
            except Exception:
                log.exception("cannot load slot %d, trying again", slot.number)
                time.sleep(RETRY)

    def _drained(self, slot: Slot) -> None:
        with self._lock:
            seq = slot._drain
            if not seq or slot._flights or not slot.open:
                return
            slot.open, slot._drain = False, 0
        try:
            gone = [d._asdict() for d in self._left(slot)]
        except Exception:
            self._failed()
        self._answer("drained", slot, seq, gone=gone)

    def _answer(self, kind: str, slot: Slot, seq: int, **fields: Any) -> None:
        line = json.dumps({"type": kind, "slot": slot.number, "seq": seq, **fields})
        with self._sends:
            self._socket.sendall(line.encode() + b"\n")

    def _watch(self) -> None:
        late = 0
        while late < 2:  # messages that are there are read first
            time.sleep(0.05)
            with self._lock:
                past = time.monotonic() >= self._deadline and any(slot.open for slot in self._all.values())
            late = late + 1 if past else 0
        self._end("the member's Lease was not renewed in time")

    @staticmethod
    def _end(why: str) -> None:
        log.error("this process ends, because it has lost its share: %s", why)
        os._exit(LOST)

    @staticmethod
    def _failed() -> None:
        log.exception("this process ends, because one of its functions has failed")
        os._exit(FAILED)
