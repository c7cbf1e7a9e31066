import { parentPort, workerData } from 'node:worker_threads';
import { BenchUpstream } from './upstream.js';

const { count, events, eventMs } = workerData as { count: number; events: number; eventMs: number };
const upstreams = Array.from({ length: count }, () => new BenchUpstream(events, eventMs));
parentPort!.postMessage(await Promise.all(upstreams.map((upstream) => upstream.listen())));
