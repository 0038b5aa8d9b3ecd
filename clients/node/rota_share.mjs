// A share of the objects for a program that `rota run` has started. Node 18 or later, without dependencies, on Linux.
//
//   const share = new Share({ load, opened, drop });
//   await share.start();               // the functions are called for each slot that comes or goes
//   await share.work(slotNumber, () => reconcile(namespace, name));
//
// load(slot) lists the slot's objects, by slot.selectors[kind], and resolves when the program knows all of them. It is
// called again when others may have changed them. opened(slot) queues them. drop(slot) forgets them. SlotInformers does
// these with informers of @kubernetes/client-node.
//
// The process ends itself when it may no longer work on an open slot: its member could not renew its Lease in time, or
// `rota run` has gone away.
//
// https://github.com/rota-dev/rota: docs/run.md specifies the protocol.

import net from 'node:net';
import readline from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';

const VERSION = 1;
const LOST = 75; // the exit code of a program that lost its share
const RETRY = 1000; // milliseconds before load is called again after it failed

/** Seconds on CLOCK_MONOTONIC. */
const monotonic = () => Number(process.hrtime.bigint()) / 1e9;

/** A slot of this program. */
export class Slot {
  constructor(number) {
    this.number = number; // from 0 to Share.slots - 1
    this.selectors = {}; // label selectors by kind
    this.hashes = [0n, 0n]; // the first and the last hash
    this.epoch = 0; // rises each time the slot goes to another member
    this.gone = []; // deletions that the former owner left, as {kind, namespace, name}; for opened
    this.open = false;
    this.seq = 0; // of the load that is to be answered, 0 if the slot was shut
    this.drain = 0; // the seq of a drain that is to be answered
    this.flights = 0;
  }
}

/** The share of this process. */
export class Share {
  /**
   * load(slot), opened(slot) and drop(slot) are as in the text above. left(slot), which may be left out, returns the
   * deletions in a drained slot that this program knows of and has not finished, as {kind, namespace, name}.
   */
  constructor({ load, opened, drop, left = () => [] }, path = process.env.ROTA_SHARE) {
    if (!path) {
      throw new Error("ROTA_SHARE is not set: start the program with rota run NAME -- 'ROTA_SHARE={{.Share}}' ...");
    }
    Object.assign(this, { load, opened, drop, left, path });
    this.all = new Map();
    this.jobs = new Map(); // by slot: the end of its last load or drop, which run one after the other
    this.deadline = Infinity; // on monotonic()
    this.slots = 0; // how many there are
    this.kinds = [];
  }

  /** Connects, and resolves when rota has said hello. */
  start() {
    return new Promise((resolve, reject) => {
      this.socket = net.connect(this.path);
      this.socket.on('error', (err) => (this.slots ? this.#lost(err.message) : reject(err)));
      this.socket.on('close', () => {
        if (this.slots) this.#lost('rota has closed the connection');
        else reject(new Error('rota has closed the connection'));
      });
      readline.createInterface({ input: this.socket, crlfDelay: Infinity }).on('line', (line) => {
        try {
          const m = JSON.parse(line);
          if (this.slots) {
            this.#heard(m);
          } else if (m.type !== 'hello' || m.version !== VERSION) {
            throw new Error(`rota says ${line}, which this client does not understand`);
          } else {
            this.slots = m.slots;
            this.kinds = m.kinds;
            setInterval(() => this.#watch(), 100).unref();
            resolve();
          }
        } catch (err) {
          if (this.slots) this.#lost(err.stack); // the program must not go on without messages
          reject(err);
        }
      });
    });
  }

  /** Whether work may begin in a slot. */
  owns(number) {
    const slot = this.all.get(number);
    return Boolean(slot && slot.open && !slot.drain && monotonic() < this.deadline);
  }

  /**
   * Calls work, and resolves with its result. The slot does not move meanwhile. Resolves with undefined, without calling
   * work, if the program must not work in the slot: then forget the key, as it comes again when the slot is opened.
   */
  async work(number, work) {
    if (!this.owns(number)) return undefined;
    const slot = this.all.get(number);
    slot.flights++;
    try {
      return await work();
    } finally {
      slot.flights--;
      this.#drained(slot);
    }
  }

  #heard(m) {
    if (m.type === 'deadline') {
      this.deadline = m.monotonic;
      return;
    }
    if (!['warm', 'load', 'open', 'drain', 'shut'].includes(m.type)) return; // of a later version
    let slot = this.all.get(m.slot);
    if (!slot) this.all.set(m.slot, (slot = new Slot(m.slot)));
    switch (m.type) {
      case 'warm':
        this.#answer('warmed', slot, m.seq); // load lists
        break;
      case 'load':
        slot.selectors = m.selectors ?? {};
        slot.hashes = m.hashes.map((text) => BigInt(`0x${text}`));
        slot.gone = m.gone ?? [];
        slot.seq = m.seq;
        this.#later(slot, () => this.#loading(slot, m.seq));
        break;
      case 'open':
        slot.open = true;
        slot.epoch = m.epoch;
        slot.drain = 0;
        this.opened(slot);
        break;
      case 'drain':
        slot.drain = m.seq;
        this.#drained(slot);
        break;
      default: // shut
        this.all.delete(slot.number);
        slot.open = false;
        slot.seq = 0;
        this.#later(slot, () => this.drop(slot));
    }
  }

  #later(slot, job) {
    const before = this.jobs.get(slot.number) ?? Promise.resolve();
    this.jobs.set(slot.number, before.then(job).catch((err) => console.error('cannot drop a slot:', err)));
  }

  async #loading(slot, seq) {
    while (slot.seq === seq) {
      try {
        await this.load(slot);
        this.#answer('loaded', slot, seq);
        return;
      } catch (err) {
        console.error(`cannot load slot ${slot.number}, trying again:`, err);
        await sleep(RETRY);
      }
    }
  }

  #drained(slot) {
    const seq = slot.drain;
    if (!seq || slot.flights || !slot.open) return;
    slot.open = false;
    slot.drain = 0;
    this.#answer('drained', slot, seq, { gone: [...this.left(slot)] });
  }

  #answer(type, slot, seq, fields) {
    this.socket.write(`${JSON.stringify({ type, slot: slot.number, seq, ...fields })}\n`);
  }

  #watch() {
    if (monotonic() >= this.deadline && [...this.all.values()].some((slot) => slot.open)) {
      this.#lost("the member's Lease was not renewed in time");
    }
  }

  #lost(why) {
    console.error(`this process ends, because it has lost its share: ${why}`);
    process.exit(LOST);
  }
}

/**
 * Informers of @kubernetes/client-node, one for each slot, for one kind.
 *
 *   const websites = new SlotInformers('Website.web.example.com', {
 *     make: (selector) => k8s.makeInformer(kc, path, () => list(selector), selector),
 *     changed: (object, slot) => queue.add(object, slot),   // added, updated, or deleted if the third argument is true
 *   });
 *   const share = new Share(websites);
 */
export class SlotInformers {
  constructor(kind, { make, changed }) {
    Object.assign(this, { kind, make, changed });
    this.bySlot = new Map();
    this.load = (slot) => this.#load(slot);
    this.opened = (slot) => this.list(slot.number).forEach((object) => this.changed(object, slot, false));
    this.drop = (slot) => this.#stop(slot.number);
  }

  /** The objects in a slot, or in all of them. */
  list(number) {
    const informers = number === undefined ? [...this.bySlot.values()] : [this.bySlot.get(number)];
    return informers.flatMap((informer) => informer?.list() ?? []);
  }

  /** The object of a name in a slot. */
  get(number, name, namespace) {
    return this.bySlot.get(number)?.get(name, namespace);
  }

  #stop(number) {
    const informer = this.bySlot.get(number);
    this.bySlot.delete(number); // first, because stop reports an error
    informer?.stop();
  }

  async #load(slot) {
    this.#stop(slot.number); // its cache may lack the last writes of another member
    const informer = this.make(slot.selectors[this.kind]);
    informer.on('add', (object) => this.changed(object, slot, false));
    informer.on('update', (object) => this.changed(object, slot, false));
    informer.on('delete', (object) => this.changed(object, slot, true));
    let failed;
    const loading = new Promise((resolve, reject) => (failed = reject));
    informer.on('error', (err) => {
      if (this.bySlot.get(slot.number) !== informer) {
        failed(err);
        return;
      }
      console.error(`the watch of ${this.kind} in slot ${slot.number} has failed, trying again:`, err);
      sleep(RETRY).then(() => this.bySlot.get(slot.number) === informer && informer.start());
    });
    await Promise.race([loading, informer.start()]);
    this.bySlot.set(slot.number, informer);
  }
}
