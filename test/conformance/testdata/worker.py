"""The program by which the Python client is held against the protocol."""

import logging
import os
import sys
import time

from rota_dispatch import Retry, Worker


def note(line):
    with open(os.environ["JOURNAL"], "a", encoding="utf-8") as f:
        f.write(line + "\n")


def handle(take):
    note(f"begin {take.name} {take.attempt} {str(take.gone).lower()}")
    what, number = take.name.split("-")[:2]
    if what == "stuck":
        time.sleep(float(number))
    if what == "slow" and take.ended.wait(float(number)):
        note(f"stopped {take.name}")
        take.check()
    note(f"end {take.name}")
    if what == "fail" and take.attempt <= int(number):
        raise Retry()
    return float(number) if what == "after" else None


logging.basicConfig(stream=sys.stderr, level=logging.INFO)
worker = Worker(
    os.environ["ROTA_DISPATCH_URL"], os.environ["ROTA_DISPATCH_KINDS"].split(","), handle,
    concurrency=int(os.environ["ROTA_DISPATCH_CONCURRENCY"]), name=os.environ["ROTA_DISPATCH_WORKER"],
    token_file=os.environ["ROTA_DISPATCH_TOKEN_FILE"], ca_file=os.environ["ROTA_DISPATCH_CA_FILE"],
    grace=float(os.environ["ROTA_DISPATCH_GRACE_SECONDS"]),
)
worker.stop_on_signals()
worker.run()
