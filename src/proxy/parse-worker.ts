import { setPriority } from 'node:os';
import { parentPort, workerData } from 'node:worker_threads';
import { ApiError } from '../openai/index.js';
import type { ParseReply, ParseTask } from './parse-pool.js';
import { Preparer, type PrepareOptions } from './prepare.js';

// Of this thread alone (setpriority(2) on Linux): on a core that it shares, streams go first.
if (process.platform === 'linux') setPriority(19);

const preparer = new Preparer(workerData as PrepareOptions);

parentPort!.on('message', ({ id, api, body, bytes, tenant }: ParseTask) => {
  let reply: ParseReply;
  try {
    const prepared = preparer.prepare(api, Buffer.from(body, 0, bytes), tenant);
    reply = { id, body, bytes, prepared, error: null };
  } catch (error) {
    const fault = error instanceof ApiError ? error : new ApiError(500, String(error));
    reply = {
      id,
      body,
      bytes,
      prepared: null,
      error: { ...fault, status: fault.status, message: fault.message },
    };
  }
  parentPort!.postMessage(reply, [body]);
});
