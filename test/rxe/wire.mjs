/**
 * Runs on both hosts: traffic of two classes in both directions, without and with loss, and over a link that goes down for
 * a moment. Host 1 writes what it did to $DUALPATH_OUT/wire.json.
 */
import { execFileSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { defaultControlPort, serveNode } from '../../dist/bench/index.js';
import { Sides } from '../../dist/bench/rdma/sides.js';

const { DUALPATH_OUT, DUALPATH_RXE_ADDRESS, DUALPATH_RXE_ADDRESSES, DUALPATH_RXE_HOST, DUALPATH_RXE_LINK } =
  process.env;
const lossShare = '3%';
const bytes = 16384;
const flapMs = 300;

const lose = () => execFileSync('tc', ['qdisc', 'add', 'dev', 'eth0', 'root', 'netem', 'loss', lossShare]);
const keep = () => execFileSync('tc', ['qdisc', 'delete', 'dev', 'eth0', 'root']);

async function traffic(pair) {
  const stop = pair.floodBack(bytes, 4);
  await pair.run({ kind: 'write', bytes, chain: 8, requests: 64 });
  await pair.run({ kind: 'readLatency', bytes, requests: 32 });
  return await stop();
}

async function measure() {
  const peer = DUALPATH_RXE_ADDRESSES.split(',')[1];
  const sides = await Sides.open({ peer });
  const setting = { bytes, queuePairs: 1, depth: 64 };
  const kv = await sides.connect({ ...setting, trafficClass: 'kv' });
  const inference = await sides.connect({ ...setting, trafficClass: 'inference' });
  for (const pair of [kv, inference]) await traffic(pair);
  lose();
  for (const pair of [kv, inference]) await traffic(pair);
  keep();
  const flapped = kv.run({ kind: 'write', bytes, chain: 16, requests: 1600 });
  writeFileSync(DUALPATH_RXE_LINK, 'down\n');
  await sleep(flapMs);
  writeFileSync(DUALPATH_RXE_LINK, 'up\n');
  const { requests, elapsedNs } = await flapped;
  const result = {
    kv: kv.qpNums,
    inference: inference.qpNums,
    flap: { requests, elapsedMs: elapsedNs / 1e6 },
  };
  await sides.close();
  writeFileSync(`${DUALPATH_OUT}/wire.json`, JSON.stringify(result));
}

if (DUALPATH_RXE_HOST === '1') await measure();
else {
  const signal = AbortSignal.timeout(300_000);
  await serveNode({ address: DUALPATH_RXE_ADDRESS, port: defaultControlPort, once: true, signal });
}
