/** Opens a store again and again, off its thread, until it is terminated. */
import { parentPort, workerData } from 'node:worker_threads';
import { BlockStore, blockLayout, loadModel } from '../../dist/index.js';

const layout = blockLayout(loadModel('demo'), { blockTokens: 64 });
parentPort.postMessage('ready');
while (true) await BlockStore.openAsync({ path: workerData, layout });
