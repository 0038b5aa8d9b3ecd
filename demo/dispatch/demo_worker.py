"""A worker of `rota-demo --dispatch`: the Website reconciler in Python, and a journal of its takes.

The demo writes website.py and rota_dispatch.py beside it. The journal is that of package test/rig/journal.
"""

import itertools
import json
import logging
import os
import sys
import threading
import time

import rota_dispatch
import website

config = json.loads(os.environ["ROTA_DEMO_DISPATCH"])["Worker"]
api = website.API(config["server"], config["apiToken"], config["apiCA"])
reconciler = website.Reconciler(api, website.Pages(config["pages"]))
journal = os.open(config["journal"], os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_WRONLY, 0o644)
numbers = itertools.count(1)


def now():
    """The journal's clock, in nanoseconds."""
    if sys.platform == "linux":
        return time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    return time.time_ns()


def record(*fields):
    """Writes a line at once, so that it is there whatever becomes of this process."""
    os.write(journal, (" ".join(str(f) for f in fields) + "\n").encode())


def deadline(take):
    return now() + int(take.remaining() * 1e9)


def handle(take):
    start = now()
    path = f"/apis/{website.GROUP_VERSION}/namespaces/{take.namespace}/websites/{take.name}"
    meta = (api.request("GET", path, timeout=max(take.remaining(), 0.001)) or {}).get("metadata", {})
    number, last = next(numbers), deadline(take)
    record("S", number, start, f"{take.namespace}/{take.name}", meta.get("uid", "-"), meta.get("generation", 0), take.epoch)
    record("T", number, last, take.resource_version or "-", take.attempt)

    def remaining():
        nonlocal last
        at = deadline(take)
        if at > last + 100_000_000:  # it was extended
            last = at
            record("T", number, last, take.resource_version or "-", take.attempt)
        return take.remaining()

    try:
        take.ended.wait(config["pause"])  # something outside of Kubernetes takes its time
        take.check()
        return reconciler.reconcile(take.namespace, take.name, remaining) or None
    except website.Expired:
        raise rota_dispatch.Ended() from None
    finally:
        record("E", number, now())


def end_with_input():
    sys.stdin.read()
    os._exit(3)


logging.basicConfig(level=logging.INFO)
threading.Thread(target=end_with_input, daemon=True).start()
worker = rota_dispatch.Worker(
    config["urls"], [config["kind"]], handle, concurrency=config["concurrency"], name=config["name"],
    token_file=config["tokenFile"], ca_file=config["caFile"], length=config["length"])
worker.stop_on_signals()
worker.run()
