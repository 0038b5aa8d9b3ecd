"""Workers for Rota's dispatchers, with Python's standard library only. Python 3.9 or later.

A Worker takes keys of objects, calls a handler for each, extends the takes of handlers that take long, and tells the
dispatchers how each ended:

    def handle(take):
        site = read_website(take.namespace, take.name)  # from the API server: there is no cache
        ...
        take.check()                                    # raises Ended if somebody else may have the key
        write(site)                                     # with the resourceVersion that was read

    worker = Worker("https://website-dispatch.operators.svc", ["Website.web.example.com"], handle, concurrency=8)
    worker.stop_on_signals()
    worker.run()

What a handler returns or raises says how the work ended:

    None                 it is done
    a number             it is done, and the key is to come again after that many seconds
    raise Retry(5)       it failed; the key comes again after a delay that grows with each failure, at least 5 s
    any other exception  the same, and the exception is logged with its traceback

A take is exclusive while it lasts. A thread cannot be stopped from outside, so a handler has to look: take.ended is a
threading.Event to wait on, and take.check() raises Ended. A process that is paused at the wrong moment can still send a
write late, so send resourceVersion with writes where you can.

https://github.com/rota-dev/rota: docs/dispatch.md specifies the protocol.
"""

from __future__ import annotations

import email.utils
import http.client
import json
import logging
import os
import queue
import random
import signal
import socket
import ssl
import threading
import time
import urllib.parse
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple, Union

__all__ = ["Client", "Ended", "Ending", "Problem", "Retry", "Take", "Worker", "clock"]

PROBLEMS = "https://rota.dev/problems/"

REQUEST_TIMEOUT = 10.0  # of an answer that a dispatcher need not wait for
POLL_SECONDS = 30.0
EMPTY_PAUSE = 0.05  # after an answer without a key
LOOK_EVERY = 0.25  # waiting does not count the time that the machine sleeps
LAST_ANSWER = 0.5  # for an answer that may be on its way when the worker has to stop; what it brings is released
EXTEND_GAP = 0.2  # the shortest time between two extensions
LAST_WORDS = 5.0  # for handlers to return, and for the dispatchers to hear of it, after the grace
FIRST_DELAY, MAX_DELAY = 0.1, 10.0  # between attempts
MAX_RETRY_AFTER = 600.0
TOKEN_AGE = 10.0  # before the file is read again
MAX_ANSWER = 16 << 20
MAX_AFTER = 365 * 86400.0  # dispatchers refuse more than about a year
MAX_REASON = 512
MAX_TAKES, MAX_BODY = 100, 64 << 10  # of a request about several takes
STOPS = "the worker stops"


def clock() -> float:
    """Seconds of a clock that goes on while the machine sleeps, where there is one."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


class Problem(Exception):
    """An answer with an error. kind is its type without PROBLEMS, such as "forbidden", or "" if it has none."""

    def __init__(self, status: int, kind: str = "", detail: str = "", retry_after: float = 0.0) -> None:
        super().__init__(f"{status} {kind}: {detail}" if detail else f"{status} {kind}".rstrip())
        self.status, self.kind, self.detail, self.retry_after = status, kind, detail, retry_after

    @property
    def temporary(self) -> bool:
        """Whether the same request may succeed later."""
        return self.status >= 500 or self.status in (408, 429)


class Ended(Problem):
    """The take has ended: do not go on with the work. Somebody else may have the key."""

    def __init__(self, detail: str = "the take has ended") -> None:
        super().__init__(410, "ended", detail)


class Retry(Exception):
    """A handler raises it to say that the work failed. The key comes again after a delay that grows with each failure,
    but not before that many seconds."""

    def __init__(self, after: float = 0.0) -> None:
        super().__init__(f"retry, not before {after} s")
        self.after = after


class Take:
    """A key that this worker has until it says how the work ended, or the take expires."""

    def __init__(self, sent: float, fields: Dict[str, Any]) -> None:
        self.kind: str = fields["kind"]  # KIND.GROUP, or KIND in the core group
        self.namespace: str = fields.get("namespace", "")
        self.name: str = fields["name"]
        self.uid: str = fields.get("uid", "")  # may be missing; so may resource_version
        self.resource_version: str = fields.get("resourceVersion", "")
        self.gone: bool = fields.get("gone", False)  # the object was deleted
        self.reason: str = fields.get("class", "")  # changed, recent or opened
        self.attempt: int = fields.get("attempt", 1)  # above 1: takes have failed or expired since one succeeded
        self.slot: int = fields.get("slot", 0)
        self.epoch: int = fields.get("epoch", 0)  # rises each time the slot goes to another dispatcher
        self.waited: float = fields.get("waitedSeconds", 0.0)  # how long the key had been ready
        self.draining = False  # the slot is about to go to another dispatcher: finish soon
        self.ended = threading.Event()  # set when the take has ended, or the worker has to stop
        self._token: str = fields["token"]
        self._deadline = sent + fields["expiresInSeconds"]
        self._why = ""
        self._next = 0.0  # when to extend it; infinite while a request is under way
        self._failures = 0  # of extensions, in a row

    def __repr__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"

    @property
    def key(self) -> Tuple[str, str, str]:
        return self.kind, self.namespace, self.name

    def remaining(self) -> float:
        """How many seconds the take lasts still. It may rise while a Worker extends the take."""
        return self._deadline - clock()

    def check(self) -> None:
        """Raises Ended if the take has ended, or the worker has to stop."""
        if self.remaining() <= 0:
            self._end("the take has expired")
        if self.ended.is_set():
            raise Ended(self._why)

    def _extended(self, sent: float, answer: Dict[str, Any]) -> None:
        self._deadline = sent + answer["expiresInSeconds"]
        self.draining = answer.get("draining", False)

    def _end(self, why: str) -> None:
        if not self.ended.is_set():
            self._why = why
            self.ended.set()


class Ending(NamedTuple):
    """A take, and how the work on it ended, as the arguments of Client.done."""

    take: Take
    retry: bool = False
    after: float = 0.0
    reason: str = ""


def _batches(bodies: Sequence[Dict[str, Any]]) -> Iterator[List[Dict[str, Any]]]:
    """As many of the bodies at a time as fit into a request."""
    batch: List[Dict[str, Any]] = []
    size = 0
    for body in bodies:
        more = len(json.dumps(body)) + 2
        if batch and (len(batch) == MAX_TAKES or size + more > MAX_BODY - 20):
            yield batch
            batch, size = [], 0
        batch.append(body)
        size += more
    if batch:
        yield batch


class _Backoff:
    """Delays between attempts."""

    def __init__(self) -> None:
        self.failures = 0

    def next(self, error: BaseException) -> float:
        self.failures += 1
        return _delay(self.failures, error)


def _delay(failures: int, error: BaseException) -> float:
    after = getattr(error, "retry_after", 0.0)
    if after > 0:
        return after * random.uniform(1, 1.25)  # never before
    return min(FIRST_DELAY * 2 ** min(failures - 1, 20), MAX_DELAY) * random.uniform(0.5, 1)


def _retry_after(header: Optional[str]) -> float:
    """Reads the header of that name: seconds, or a date."""
    try:
        seconds = float(header or 0)
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(header or "").timestamp() - time.time()
        except (TypeError, ValueError, OverflowError):
            return 0.0
    return min(max(seconds, 0.0), MAX_RETRY_AFTER) if seconds == seconds else 0.0


def _problem(status: int, headers: Any, body: bytes) -> Problem:
    fields: Any = None
    try:
        fields = json.loads(body)
    except ValueError:
        pass  # a proxy's answer
    return _told(status, fields if isinstance(fields, dict) else {}, _retry_after(headers.get("Retry-After")))


def _told(status: int, fields: Dict[str, Any], retry_after: float = 0.0) -> Problem:
    """The problem that has these fields."""
    kind, detail = str(fields.get("type", "")), str(fields.get("detail", ""))
    if status == 410:
        return Ended(detail or "the take has ended")
    return Problem(status, kind[len(PROBLEMS):] if kind.startswith(PROBLEMS) else "", detail, retry_after)


def _told_of(answer: Dict[str, Any]) -> Optional[Problem]:
    """The problem of a take among others; None: there is none."""
    fields = answer.get("problem")
    return None if fields is None else _told(int(fields.get("status", 500)), fields)


# What may go wrong with a connection.
_BROKEN = (OSError, http.client.HTTPException)


class Client:
    """Sends single requests to dispatchers. May be used by several threads. Connections are kept open.

    url is that of a dispatcher or a Service, or a list of them: another one is used when one does not answer.
    token_file has the bearer token, and is read again when it changes. ca_file has the authorities to trust, in PEM.
    """

    def __init__(self, url: Union[str, Sequence[str]], *, token_file: Optional[str] = None,
                 ca_file: Optional[str] = None) -> None:
        self._urls = [urllib.parse.urlsplit(u) for u in ([url] if isinstance(url, str) else url)]
        for u in self._urls:
            if u.scheme not in ("http", "https") or not u.hostname or u.query or u.fragment:
                raise ValueError(f"URL {u.geturl()!r}: it must be like https://HOST[:PORT][/PATH]")
        if not self._urls:
            raise ValueError("no URL: name at least one")
        self._at = 0
        self._token_file, self._ca_file = token_file, ca_file
        self._token, self._token_at = "", 0.0
        self._context: Optional[ssl.SSLContext] = None
        self._context_of: Any = None
        self._lock = threading.Lock()
        self._idle: List[Tuple[int, http.client.HTTPConnection]] = []

    def take(self, worker: str, kinds: Sequence[str] = (), *, max: int = 1, wait: float = 0.0, length: float = 0.0,
             affine: bool = False, watch: Callable[[http.client.HTTPConnection], None] = lambda _: None) -> List[Take]:
        """Asks for keys. There are none if there were none in time. watch gets the connection that waits."""
        body: Dict[str, Any] = {"worker": worker, "kinds": list(kinds), "max": max, "waitSeconds": wait,
                                "lengthSeconds": length, "affine": affine}
        answer, sent = self._call("/v1/take", body, wait + REQUEST_TIMEOUT, watch)
        return [Take(sent, fields) for fields in answer["takes"]]

    def done(self, take: Take, *, retry: bool = False, after: float = 0.0, reason: str = "",
             timeout: float = REQUEST_TIMEOUT) -> None:
        """Ends a take. If after is above 0, the key comes again after that many seconds. reason says why
        the work failed: dispatchers list it with the keys that fail."""
        self._call("/v1/done", self._ending(Ending(take, retry, after, reason)), timeout)

    def done_all(self, endings: Sequence[Ending], *, timeout: float = REQUEST_TIMEOUT) -> List[Optional[Problem]]:
        """Ends several takes, each as done would, in as few requests as the dispatchers allow. Each take must be there
        once. Returns a problem for each, in their order, or None: it has ended so. A problem that is temporary, or an
        exception, says that some are not known to have ended: call it again for these, or for all. Dispatchers that are
        older than this file refuse it as invalid."""
        answers = self._all("/v1/done", [self._ending(e) for e in endings], timeout)
        return [_told_of(answer) for answer, _ in answers]

    @staticmethod
    def _ending(e: Ending) -> Dict[str, Any]:
        after = min(max(e.after, 0.0), MAX_AFTER) if e.after == e.after else 0.0  # NaN is no time
        body = {"token": e.take._token, "result": "retry" if e.retry else "ok", "afterSeconds": after}
        if e.retry and e.reason:
            body["reason"] = e.reason[:MAX_REASON]
        return body

    def extend(self, take: Take, length: float = 0.0, *, timeout: float = REQUEST_TIMEOUT) -> None:
        """Has a take last longer: that many seconds from now on, or what the dispatcher allows."""
        answer, sent = self._call("/v1/extend", {"token": take._token, "lengthSeconds": length}, timeout)
        take._extended(sent, answer)

    def extend_all(self, takes: Sequence[Take], length: float = 0.0, *,
                   timeout: float = REQUEST_TIMEOUT) -> List[Optional[Problem]]:
        """Has several takes last longer, each as extend would, in as few requests as the dispatchers allow. Each take
        must be there once. Returns a problem for each, in their order, or None: it was extended. Dispatchers that are
        older than this file refuse it as invalid."""
        answers = self._all("/v1/extend", [{"token": t._token, "lengthSeconds": length} for t in takes], timeout)
        problems: List[Optional[Problem]] = []
        for take, (answer, sent) in zip(takes, answers):  # those of one request are extended before the next is sent
            problems.append(_told_of(answer))
            if problems[-1] is None:
                take._extended(sent, answer)
        return problems

    def _all(self, path: str, bodies: Sequence[Dict[str, Any]],
             timeout: float) -> Iterator[Tuple[Dict[str, Any], float]]:
        """Sends requests about several takes, each when its answers are asked for. Yields an answer for each take, and
        when its request was sent."""
        for batch in _batches(bodies):
            answer, sent = self._call(path, {"takes": batch}, timeout)
            if len(answer["takes"]) != len(batch):
                raise ValueError(f"{path}: {len(answer['takes'])} answers for {len(batch)} takes")
            for each in answer["takes"]:
                yield each, sent

    def release(self, take: Take, *, timeout: float = REQUEST_TIMEOUT) -> None:
        """Ends a take as if it had not been: another worker gets the key."""
        self._call("/v1/release", {"token": take._token}, timeout)

    def stats(self) -> Dict[str, Any]:
        """The state of all dispatchers."""
        return self._call("/v1/stats", None, REQUEST_TIMEOUT)[0]

    def _read_token(self, refused: str = "") -> str:
        """The token. If a dispatcher has refused it, the file is read in any case."""
        if not self._token_file:
            return ""
        with self._lock:
            if self._token and self._token != refused and clock() - self._token_at < TOKEN_AGE:
                return self._token
            try:
                with open(self._token_file, encoding="ascii") as f:
                    token = f.read().strip()
            except OSError:
                token = ""  # it is being replaced
                if not self._token:
                    raise
            if token:
                self._token, self._token_at = token, clock()
            if not self._token:
                raise OSError(f"token file {self._token_file} is empty")
            return self._token

    def _tls(self) -> ssl.SSLContext:
        with self._lock:
            stat = os.stat(self._ca_file) if self._ca_file else None
            of = (stat.st_mtime_ns, stat.st_ino) if stat else None
            if self._context is None or of != self._context_of:
                self._context, self._context_of = ssl.create_default_context(cafile=self._ca_file), of
            return self._context

    def _connect(self, timeout: float) -> Tuple[int, http.client.HTTPConnection, bool]:
        """A connection to the URL in use, and whether it was used before."""
        with self._lock:
            at = self._at
            for i in reversed(range(len(self._idle))):  # the server may have closed old ones
                of, conn = self._idle[i]
                if of == at:
                    del self._idle[i]
                    if conn.sock is not None:
                        conn.sock.settimeout(timeout)
                        return at, conn, True
                    break
        u = self._urls[at]
        conn: http.client.HTTPConnection
        if u.scheme == "https":
            conn = http.client.HTTPSConnection(str(u.hostname), u.port, timeout=timeout, context=self._tls())
        else:
            conn = http.client.HTTPConnection(str(u.hostname), u.port, timeout=timeout)
        try:
            conn.connect()
            conn.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except BaseException:
            conn.close()
            self._avoid(at)
            raise
        return at, conn, False

    def _avoid(self, at: int) -> None:
        with self._lock:
            if self._at == at:
                self._at = (at + 1) % len(self._urls)

    def _call(self, path: str, body: Any, timeout: float,
              watch: Callable[[http.client.HTTPConnection], None] = lambda _: None) -> Tuple[Any, float]:
        """Sends a request. Returns the answer, and when the request was sent."""
        token, renewed = self._read_token(), False
        while True:
            at, conn, used = self._connect(timeout)
            watch(conn)
            sent = clock()
            try:
                status, headers, raw = self._exchange(at, conn, path, body, token)
            except _BROKEN as e:
                conn.close()
                if used and not isinstance(e, (socket.timeout, TimeoutError)):
                    continue  # the server had closed it
                self._avoid(at)
                raise
            except BaseException:
                conn.close()
                raise
            if status == 204:
                return None, sent
            if 200 <= status < 300:
                return json.loads(raw), sent
            if status == 503:
                self._avoid(at)
            if status == 401 and not renewed and token:
                renewed, old = True, token
                token = self._read_token(refused=old)
                if token != old:
                    continue
            raise _problem(status, headers, raw)

    def _exchange(self, at: int, conn: http.client.HTTPConnection, path: str, body: Any,
                  token: str) -> Tuple[int, Any, bytes]:
        headers = {"Accept": "application/json"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        if token:
            headers["Authorization"] = "Bearer " + token
        conn.request("POST" if body is not None else "GET", self._urls[at].path.rstrip("/") + path,
                     None if body is None else json.dumps(body).encode(), headers)
        response = conn.getresponse()
        raw = response.read(MAX_ANSWER)
        if response.will_close or not response.isclosed():
            conn.close()
        else:
            with self._lock:
                self._idle.append((at, conn))
        return response.status, response.headers, raw


Handler = Callable[[Take], Optional[float]]


class Worker:
    """Takes keys and calls handler for each, in up to concurrency threads at the same time, but never twice at the same
    time for one key.

    url, token_file and ca_file are those of Client. kinds are "KIND.GROUP", or "KIND" in the core group; none: all.
    name tells workers apart, and is the host's by default: in a Pod, that is the Pod's. length is how many seconds each
    take lasts, and is extended for; 0: as configured. affine asks for the same keys again. grace is for how many
    seconds handlers go on when the worker is stopped.

    run takes keys until stop is called. It may be called once.
    """

    def __init__(self, url: Union[str, Sequence[str]], kinds: Sequence[str], handler: Handler, *, concurrency: int = 1,
                 name: Optional[str] = None, token_file: Optional[str] = None, ca_file: Optional[str] = None,
                 length: float = 0.0, affine: bool = False, grace: float = 20.0,
                 logger: Optional[logging.Logger] = None) -> None:
        if not 1 <= concurrency <= 1000:
            raise ValueError(f"concurrency {concurrency}: must be from 1 to 1000")
        self.client = Client(url, token_file=token_file, ca_file=ca_file)
        self.kinds, self.handler, self.concurrency = list(kinds), handler, concurrency
        self.name = name or socket.gethostname()
        self.length, self.affine, self.grace = length, affine, grace
        self.log = logger or logging.getLogger("rota_dispatch")
        self._lock = threading.Condition()
        self._free = concurrency  # keys that could be worked on
        self._running: Dict[Tuple[str, str, str], Take] = {}
        self._work: "queue.SimpleQueue[Take]" = queue.SimpleQueue()
        self._extensions: "queue.SimpleQueue[Take]" = queue.SimpleQueue()
        self._stopping = threading.Event()
        self._cut = False  # the grace is over
        self._silent = threading.Event()  # no more requests are sent
        self._polling: Optional[http.client.HTTPConnection] = None

    def stop_on_signals(self, *signals: int) -> None:
        """Has signals stop the worker: SIGTERM and SIGINT, or those that are given. Call it in the main thread."""
        for number in signals or (signal.SIGTERM, signal.SIGINT):
            # In a thread: the main one may hold a lock that stop needs.
            signal.signal(number, lambda *_: threading.Thread(target=self.stop, daemon=True).start())

    def stop(self) -> None:
        """Has run return: it takes no more keys, and finishes or releases those that it has."""
        self._stopping.set()
        with self._lock:
            self._lock.notify_all()
            self._lock.wait_for(lambda: self._polling is None, LAST_ANSWER)
            conn = self._polling
            if conn is not None and conn.sock is not None:
                try:
                    conn.sock.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass  # it has ended by itself

    def run(self) -> None:
        """Takes keys until stop is called. Raises TimeoutError if handlers have not returned soon after grace."""
        for target in [self._worker] * self.concurrency + [self._extender] * min(self.concurrency, 16) + [self._keeper]:
            threading.Thread(target=target, daemon=True).start()
        backoff = _Backoff()
        while not self._stopping.is_set():
            self._poll(backoff)
        self._finish()

    def _poll(self, backoff: _Backoff) -> None:
        """Takes keys once."""
        with self._lock:
            self._lock.wait_for(lambda: self._free > 0 or self._stopping.is_set())
            n, self._free = self._free, 0
        takes: List[Take] = []
        try:
            if not self._stopping.is_set():
                takes = self.client.take(self.name, self.kinds, max=n, wait=POLL_SECONDS, length=self.length,
                                         affine=self.affine, watch=self._watch)
        except Exception as e:  # also an answer that cannot be read
            if not self._stopping.is_set():
                self.log.error("cannot take keys, trying again: %s", e)
                self._stopping.wait(backoff.next(e))
        else:
            backoff.failures = 0
            if not takes:
                self._stopping.wait(EMPTY_PAUSE)
        finally:
            with self._lock:
                self._polling = None
                self._lock.notify_all()
                self._free += max(n - len(takes), 0)
        for i, take in enumerate(takes):
            if i >= n:
                self._tell(take, self.client.release)  # more than were asked for
                continue
            self._work.put(take)

    def _watch(self, conn: http.client.HTTPConnection) -> None:
        with self._lock:
            self._polling = conn
        if self._stopping.is_set():
            raise ConnectionAbortedError(STOPS)

    def _finish(self) -> None:
        def idle() -> bool:
            return self._free == self.concurrency

        with self._lock:
            if self._lock.wait_for(idle, self.grace):
                return
            self._cut = True
            for take in self._running.values():
                take._end(STOPS)
            if self._lock.wait_for(idle, LAST_WORDS):
                return
            self._silent.set()
            if not self._lock.wait_for(idle, 1):
                raise TimeoutError(f"handlers have not returned: {list(self._running.values())}")

    def _worker(self) -> None:
        """Is a thread that calls handlers."""
        while True:
            take = self._work.get()
            try:
                self._handle(take)
            except BaseException:  # a bug here must not end the thread
                self.log.exception("%s", take)
            finally:
                with self._lock:
                    self._free += 1
                    self._lock.notify_all()

    def _handle(self, take: Take) -> None:
        if self._stopping.is_set() and take.remaining() > 0:
            self._tell(take, self.client.release)
            return
        if not self._begin(take):
            if take.remaining() <= 0:  # this process was stopped for long, or the answer was
                self.log.warning("%s: the take has expired before its handler began", take)
                return
            self.log.error("%s came again, and the handler that had it has not returned", take)
            self._tell(take, self.client.done, retry=True,
                       reason="the handler that had the key before has not returned")
            return
        retry, after, error = False, 0.0, None
        try:
            after = float(self.handler(take) or 0.0)
        except Retry as e:
            retry, after, error = True, e.after, e
        except BaseException as e:  # SystemExit, too: it would end this thread only
            retry, error = True, e
        finally:
            with self._lock:
                stops = self._cut  # then take.ended is set, whether the take has ended or not
                ended = take.ended.is_set() and take._why != STOPS or take.remaining() <= 0
                take._next = float("inf")
        try:
            if ended:
                self.log.warning("%s: %s before its handler returned", take, take._why or "the take has expired")
            elif stops and retry:
                self._tell(take, self.client.release)
            else:
                if isinstance(error, Ended):
                    self.log.warning("%s: %s", take, error)
                elif error is not None and not isinstance(error, Retry):
                    self.log.error("%s will come again (attempt %d)", take, take.attempt, exc_info=error)
                self._tell(take, self.client.done, retry=retry, after=after,
                           reason=f"{type(error).__name__}: {error}" if error else "")
        finally:
            with self._lock:
                del self._running[take.key]
                self._lock.notify_all()

    def _begin(self, take: Take) -> bool:
        """Waits until no other handler has the key: one whose take has ended may still be at it. False: that takes too
        long, or the take has expired."""
        with self._lock:
            other = self._running.get(take.key)
            if other is not None:
                other._end("the key was handed out again")
            if not self._lock.wait_for(lambda: take.key not in self._running, max(take.remaining() / 2, 0)):
                return False
            if take.remaining() <= 0:
                return False
            take._next = clock() + max(take.remaining() / 3, EXTEND_GAP)
            self._running[take.key] = take
            if self._cut:
                take._end(STOPS)
            self._lock.notify_all()
            return True

    def _tell(self, take: Take, send: Callable[..., None], **result: Any) -> None:
        """Sends the end of a take until there is an answer, as long as there is a take."""
        backoff = _Backoff()
        while True:
            left = take.remaining()
            if left <= 0 or self._silent.is_set():
                self.log.error("cannot end the take of %s: it expires", take)
                return
            try:
                send(take, timeout=min(left, REQUEST_TIMEOUT), **result)
                return
            except Ended:
                return  # it had ended, or an attempt without an answer has ended it
            except Exception as e:
                if isinstance(e, Problem) and not e.temporary:
                    self.log.error("cannot end the take of %s: %s", take, e)
                    return
                self.log.info("cannot end the take of %s, trying again: %s", take, e)
                self._silent.wait(min(backoff.next(e), max(take.remaining(), 0)))

    def _keeper(self) -> None:
        """Is a thread that ends takes that have expired, and has others extended when a third of their time is over."""
        while True:
            with self._lock:
                if not self._running:
                    self._lock.wait()
                due = clock() + LOOK_EVERY
                for take in self._running.values():
                    if take.remaining() <= 0:
                        take._end("the take has expired")
                    elif take._next <= clock():
                        take._next = float("inf")
                        self._extensions.put(take)
                    due = min(due, take._next, take._deadline if not take.ended.is_set() else due)
                if self._running:
                    self._lock.wait(max(due - clock(), 0.001))

    def _extender(self) -> None:
        """Is a thread that extends takes."""
        while True:
            take = self._extensions.get()
            delay = None
            try:
                if take.remaining() > 0:
                    self.client.extend(take, self.length, timeout=min(take.remaining(), REQUEST_TIMEOUT))
                take._failures = 0
                delay = max(take.remaining() / 3, EXTEND_GAP)
            except Ended as e:
                take._end(e.detail)
            except Exception as e:
                take._failures += 1
                delay = _delay(take._failures, e)
                self.log.error("cannot extend the take of %s, trying again until it expires: %s", take, e)
            with self._lock:
                if delay is not None and take._next == float("inf") and self._running.get(take.key) is take:
                    take._next = clock() + delay
                    self._lock.notify_all()
