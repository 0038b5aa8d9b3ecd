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
  changed: ({ metadata }, slot, gone) => gone || enqueue(slot.number, metadata.namespace, metadata.name),
});
const share = new Share(informers);

// A key is worked on once at a time, and again if it changed meanwhile, or after a delay if it failed.
const keys = new Map(); // by key that is worked on: whether it has changed since

async function enqueue(slot, namespace, name, delay = 50) {
  const key = `${namespace}/${name}`;
  if (keys.has(key)) {
    keys.set(key, true);
    return;
  }
  keys.set(key, false);
  let failed = false;
  try {
    await share.work(slot, () => reconcile(informers.get(slot, name, namespace)));
  } catch (err) {
    console.error(`${key}: ${err.message}`);
    failed = true;
  }
  const changed = keys.get(key);
  keys.delete(key);
  if (changed) enqueue(slot, namespace, name);
  else if (failed) setTimeout(() => enqueue(slot, namespace, name, Math.min(2 * delay, 60_000)), delay);
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
