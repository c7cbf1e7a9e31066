/** A thread of the evaluation: runs the tasks that it is sent, one after the other. */
import { parentPort, workerData } from 'node:worker_threads';
import { runTask, type Task } from './run.js';
import type { RouteTrace } from './trace.js';

parentPort!.on('message', (task: Task) => {
  parentPort!.postMessage(runTask(workerData as RouteTrace, task));
});
