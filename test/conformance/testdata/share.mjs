// The program by which the Node client of rota run is held against the protocol.

import fs from 'node:fs';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

import { Share } from '../../../clients/node/rota_share.mjs';

const names = new Map();
const gone = new Map();

const note = (line) => fs.appendFileSync(process.env.JOURNAL, `${line}\n`);

async function until(name) {
  const file = path.join(process.env.OBJECTS, name);
  while (!fs.existsSync(file)) await sleep(10);
  return file;
}

async function load(slot) {
  const text = fs.readFileSync(await until(String(slot.number)), 'utf8');
  names.set(slot.number, text.split('\n').filter(Boolean));
  note(`load ${slot.number}`);
}

function opened(slot) {
  note(`open ${slot.number}`);
  const later = (d) => d.name.startsWith('later');
  gone.set(slot.number, slot.gone.filter(later));
  const all = [...names.get(slot.number), ...slot.gone.filter((d) => !later(d)).map((d) => d.name)];
  for (const name of all) {
    share.work(slot.number, async () => {
      note(`begin ${name}`);
      if (name.startsWith('wait')) await until(name);
      note(`end ${name}`);
    });
  }
}

function drop(slot) {
  names.delete(slot.number);
  note(`drop ${slot.number}`);
}

const share = new Share({ load, opened, drop, left: (slot) => gone.get(slot.number) ?? [] });
await share.start();
setInterval(() => {}, 1e6);
