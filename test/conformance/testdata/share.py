"""The program by which the Python client of rota run is held against the protocol."""

import os
import threading
import time

from rota_share import Share

names, gone = {}, {}


def note(line):
    with open(os.environ["JOURNAL"], "a", encoding="utf-8") as f:
        f.write(line + "\n")


def until(name):
    path = os.path.join(os.environ["OBJECTS"], name)
    while not os.path.exists(path):
        time.sleep(0.01)
    return path


def load(slot):
    with open(until(str(slot.number)), encoding="utf-8") as f:
        names[slot.number] = f.read().split()
    note(f"load {slot.number}")


def opened(slot):
    note(f"open {slot.number}")
    gone[slot.number] = [d for d in slot.gone if d.name.startswith("later")]
    for name in names[slot.number] + [d.name for d in slot.gone if not d.name.startswith("later")]:
        threading.Thread(target=work, args=(slot.number, name), daemon=True).start()


def work(number, name):
    slot = share.begin(number)
    if not slot:
        return
    note(f"begin {name}")
    if name.startswith("wait"):
        until(name)
    note(f"end {name}")
    share.end(slot)


def drop(slot):
    names.pop(slot.number, None)
    note(f"drop {slot.number}")


share = Share(load, opened, drop, left=lambda slot: gone.get(slot.number, []))
share.start()
threading.Event().wait()
