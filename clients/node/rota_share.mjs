// A share of the objects for a program that `rota run` has started. Node 18 or later, without dependencies, on Linux.
//
//   const share = new Share({ load, opened, drop });
//   await share.start();               // the functions are called for each slot that comes or goes
//   await share.work(slotNumber, () => reconcile(namespace, name));
//
// load(slot) lists the slot's objects, by slot.selectors[kind], and resolves when the program knows all of them. It is
// called again if it fails, and when others may have changed the objects. opened(slot) queues them, and slot.gone.
// drop(slot) forgets them. SlotInformers does these with informers of @kubernetes/client-node.
//
// The process ends itself when it may no longer work on an open slot: its member could not renew its Lease in time, or
// `rota run` has gone away; and when one of the functions but load fails.
//
// https://github.com/rota-dev/rota: docs/run.md specifies the protocol.

import net from 'node:net';
import readline from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';

const VERSION = 1;
const LOST = 75; // the exit code of a program that lost its share
const RETRY = 1000; // milliseconds before something that failed is tried again

/** Seconds on CLOCK_MONOTONIC. */
const monotonic = () => Number(process.hrtime.bigint()) / 1e9;

/** A slot of this program. */
export class Slot {
  constructor(number) {
    this.number = number; // from 0 to Share.slots - 1
    this.selectors = {}; // label selectors by kind
    this.hashes = [0n, 0n]; // the first and the last hash
    this.epoch = 0; // rises each time the slot goes to another member
    this.gone = []; // deletions that the former owner left, as {kind, namespace, name}
    this.open = false;
    this.seq = 0; // of the load that is to be answered, 0 if the slot was shut
    this.drain = 0; // the seq of a drain that is to be answered
    this.flights = 0;
  }
}

/** The share of this process. */
export class Share {
  /**
   * Takes load(slot), opened(slot) and drop(slot), as in the text above. left(slot), which may be left out, returns the
   * deletions in a drained slot that this program knows of and has not finished, as {kind, namespace, name}. Several
   * objects with these functions, such as SlotInformers of several kinds, may be given as an array.
   */
  constructor(parts, path = process.env.ROTA_SHARE) {
    if (!path) {
      throw new Error("ROTA_SHARE is not set: start the program with rota run NAME -- 'ROTA_SHARE={{.Share}}' ...");
    }
    this.parts = [parts].flat();
    this.path = path;
    this.all = new Map();
    this.jobs = new Map(); // by slot: the end of its last load, opened or drop, which run one after the other
    this.deadline = Infinity; // on monotonic()
    this.slots = 0; // how many there are
    this.kinds = [];
  }

  /** Connects, and resolves after the first message. */
  start() {
    return new Promise((resolve, reject) => {
      this.socket = net.connect(this.path);
      this.socket.on('error', (err) => (this.slots ? this.#end(err.message) : reject(err)));
      this.socket.on('close', () => {
        if (this.slots) this.#end('rota has closed the connection');
        else reject(new Error('rota has closed the connection'));
      });
      readline.createInterface({ input: this.socket, crlfDelay: Infinity }).on('line', (line) => {
        try {
          const m = JSON.parse(line);
          if (this.slots) this.#receive(m);
          else {
            this.#hello(m);
            resolve();
          }
        } catch (err) {
          if (this.slots) this.#end(`cannot handle ${line}: ${err.stack}`); // it must not go on without messages
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

  #hello(m) {
    if (m.type !== 'hello' || m.version !== VERSION) {
      throw new Error(`this client speaks version ${VERSION} of the protocol; the first message was ${JSON.stringify(m)}`);
    }
    for (const { kind } of this.parts) {
      if (kind && !m.kinds.includes(kind)) {
        throw new Error(`rota run has no --kind ${kind}, but: ${m.kinds.join(', ') || 'none'}`);
      }
    }
    this.slots = m.slots;
    this.kinds = m.kinds;
    setInterval(() => this.#watch(), 100).unref();
  }

  #receive(m) {
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
        this.#later(slot, 'load', () => this.#loading(slot, m.seq));
        break;
      case 'open':
        slot.open = true;
        slot.epoch = m.epoch;
        slot.drain = 0;
        this.#later(slot, 'opened', () => this.#each('opened', slot));
        break;
      case 'drain':
        slot.drain = m.seq;
        this.#drained(slot);
        break;
      default: // shut
        this.all.delete(slot.number);
        slot.open = false;
        slot.seq = 0;
        this.#later(slot, 'drop', () => this.#each('drop', slot));
    }
  }

  async #each(name, slot) {
    for (const part of this.parts) await part[name](slot);
  }

  /** Does a job after the others of the slot. */
  #later(slot, name, job) {
    const before = this.jobs.get(slot.number) ?? Promise.resolve();
    this.jobs.set(slot.number, before.then(job).catch((err) => this.#failed(name, slot, err)));
  }

  async #loading(slot, seq) {
    while (slot.seq === seq) {
      try {
        await this.#each('load', slot);
        this.#answer('loaded', slot, seq);
        return;
      } catch (err) {
        console.error(`load of slot ${slot.number} has failed, trying again:`, err);
        await sleep(RETRY);
      }
    }
  }

  #drained(slot) {
    if (!slot.drain || slot.flights || !slot.open) return;
    let gone = [];
    try {
      gone = this.parts.flatMap((part) => [...(part.left?.(slot) ?? [])]);
    } catch (err) {
      this.#failed('left', slot, err);
    }
    this.#answer('drained', slot, slot.drain, { gone });
    slot.open = false;
    slot.drain = 0;
  }

  #answer(type, slot, seq, fields) {
    this.socket.write(`${JSON.stringify({ type, slot: slot.number, seq, ...fields })}\n`);
  }

  #late() {
    return monotonic() >= this.deadline && [...this.all.values()].some((slot) => slot.open);
  }

  #watch() {
    if (!this.#late()) return;
    setTimeout(() => { // messages that are there are read first
      if (this.#late()) this.#end("the member's Lease was not renewed in time");
    }, 20);
  }

  #end(why) {
    console.error(`this process ends, because it has lost its share: ${why}`);
    process.exit(LOST);
  }

  #failed(name, slot, err) {
    console.error(`this process ends, because ${name} has failed for slot ${slot.number}:`, err);
    process.exit(1);
  }
}

/**
 * Informers of @kubernetes/client-node, one for each slot, for one kind.
 *
 *   const websites = new SlotInformers('Website.web.example.com', {
 *     make: (selector) => k8s.makeInformer(kc, path, () => list(selector), selector),
 *     changed: (object, slot, gone) => queue.add(object.metadata, slot.number),
 *   });
 *   const share = new Share(websites);
 *
 * changed is called for each object of a slot that is opened, when one changes, and with gone true when one is gone. That
 * may also mean that it has lost its label: ask the API server before cleaning up. Of objects whose deletion a former
 * owner left, only the name is known. left is as for Share, and may be left out.
 */
export class SlotInformers {
  constructor(kind, { make, changed, left }) {
    Object.assign(this, { kind, make, changed, left });
    this.bySlot = new Map();
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

  async load(slot) {
    const before = this.bySlot.get(slot.number);
    const informer = this.make(slot.selectors[this.kind]);
    const isCurrent = () => this.bySlot.get(slot.number) === informer;
    this.bySlot.set(slot.number, informer); // the one before may lack the last writes of another member
    before?.stop();
    const on = (event, gone) =>
      informer.on(event, (object) => {
        if (isCurrent()) this.changed(object, slot, gone);
        else informer.stop(); // it had a request under way when it was stopped
      });
    on('add', false);
    on('update', false);
    on('delete', true);
    let fail;
    const failed = new Promise((resolve, reject) => (fail = reject));
    failed.catch(() => {});
    let loading = true;
    informer.on('error', (err) => {
      if (loading) fail(err);
      else this.#again(slot, informer, isCurrent, err);
    });
    await Promise.race([failed, informer.start()]);
    loading = false;
    for (const object of before?.list() ?? []) {
      const { name, namespace } = object.metadata;
      if (!informer.get(name, namespace)) this.changed(object, slot, true);
    }
  }

  opened(slot) {
    for (const object of this.list(slot.number)) this.changed(object, slot, false);
    for (const { kind, namespace, name } of slot.gone) {
      if (kind === this.kind) this.changed({ metadata: { namespace, name } }, slot, true);
    }
  }

  drop(slot) {
    const informer = this.bySlot.get(slot.number);
    this.bySlot.delete(slot.number); // first, because stop reports an error
    informer?.stop();
  }

  async #again(slot, informer, isCurrent, err) {
    while (isCurrent()) {
      console.error(`the watch of ${this.kind} in slot ${slot.number} has failed, trying again:`, err);
      await sleep(RETRY);
      try {
        if (isCurrent()) await informer.start();
        return;
      } catch (failure) {
        err = failure;
      }
    }
  }
}
