// Writes the SHA-256 of each ConfigMap's data into an annotation.
//
//   npm install @kubernetes/client-node
//   rota run checksum --kind ConfigMap -n default -- 'ROTA_SHARE={{.Share}}' node example.mjs

import crypto from 'node:crypto';
import * as k8s from '@kubernetes/client-node';
import { Share, SlotInformers } from './rota_share.mjs';

const ANNOTATION = 'example.com/sha256';

const config = new k8s.KubeConfig();
config.loadFromDefault();
const api = config.makeApiClient(k8s.CoreV1Api);

const informers = new SlotInformers('ConfigMap', {
  make: (labelSelector) =>
    k8s.makeInformer(config, '/api/v1/configmaps', () => api.listConfigMapForAllNamespaces({ labelSelector }), labelSelector),
  changed: (object, slot, gone) => gone || enqueue(slot.number, object.metadata.namespace, object.metadata.name),
});
const share = new Share(informers);

// A key is worked on once at a time, and again if it changed meanwhile.
const waiting = new Map(); // by key: whether it changed while it was worked on

async function enqueue(slot, namespace, name, delay = 0) {
  const key = `${namespace}/${name}`;
  if (waiting.has(key)) {
    waiting.set(key, true);
    return;
  }
  waiting.set(key, false);
  if (delay) await new Promise((done) => setTimeout(done, delay));
  waiting.set(key, false);
  let retry = 0;
  try {
    await share.work(slot, () => reconcile(informers.get(slot, name, namespace)));
  } catch (err) {
    console.error(`${key}: ${err.message}`);
    retry = Math.min(2 * (delay || 50), 60_000);
  }
  const changed = waiting.get(key);
  waiting.delete(key);
  if (changed || retry) enqueue(slot, namespace, name, retry);
}

async function reconcile(object) {
  if (!object) return; // it was deleted
  const sum = crypto.createHash('sha256').update(JSON.stringify(object.data ?? {})).digest('hex');
  if (object.metadata.annotations?.[ANNOTATION] === sum) return;
  const { namespace, name, resourceVersion } = object.metadata;
  const patch = { metadata: { resourceVersion, annotations: { [ANNOTATION]: sum } } };
  await api.patchNamespacedConfigMap({ namespace, name, body: patch },
    k8s.setHeaderOptions('Content-Type', k8s.PatchStrategy.MergePatch));
}

await share.start();
