/** A thread of a sweep: runs the tasks that it is sent, one after the other. */
import { parentPort } from 'node:worker_threads';
import { runSweepTask, type SweepTask } from './sweep.js';

parentPort!.on('message', (task: SweepTask) => parentPort!.postMessage(runSweepTask(task)));
