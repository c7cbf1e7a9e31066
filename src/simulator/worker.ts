/** A thread of a sweep: runs the tasks that it is sent, one after the other. */
import { parentPort } from 'node:worker_threads';
import { runAnyTask, type AnyTask } from './sweep.js';

parentPort!.on('message', (task: AnyTask) => parentPort!.postMessage(runAnyTask(task)));
