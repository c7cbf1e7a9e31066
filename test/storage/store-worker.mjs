/** Verifies a store again and again, until it is terminated. */
import { parentPort, workerData } from 'node:worker_threads';
import { StoreAdmin } from '../../dist/index.js';

const admin = StoreAdmin.open(workerData);
parentPort.postMessage('ready');
while (true) await admin.verify();
