/**
 * An engine of the kill tests: a process that does nothing but take time over what its leader hands it, and writes down
 * from when to when it believed in which lease. Started by leader.mjs, ends with it.
 */
import { existsSync, openSync, writeFileSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { tokenOf } from './tokens.mjs';

const { name, role, folder } = JSON.parse(process.argv[2]);
const journal = openSync(join(folder, `journal-${name}-${process.pid}`), 'a');
/** What is under way, by admission. */
const running = new Map();

const nowNs = () => process.hrtime.bigint();
const write = (what, admission, request = '-') =>
  writeSync(journal, `${what} ${admission} ${request} ${nowNs()}\n`);
const flagOf = (admission) => join(folder, `prefilled-${admission}`);

/** Some time; false when the lease has been taken back meanwhile. */
async function work(job, mostMs) {
  await sleep(1 + Math.random() * mostMs);
  return running.get(job.admission) === job;
}

function say(job, message) {
  process.send({ ...message, admission: job.admission, request: job.request });
}

/** With its last word the engine has nothing of the request any more. */
function end(job, message) {
  running.delete(job.admission);
  write('end', job.admission);
  say(job, message);
}

async function prefill(job) {
  if (!(await work(job, 20))) return;
  say(job, { stage: 'prefill-read' });
  if (!(await work(job, 20))) return;
  writeFileSync(flagOf(job.admission), '');
  end(job, { stage: 'prefill' });
}

async function decode(job) {
  if (!(await work(job, 20))) return;
  say(job, { stage: 'decode-read' });
  while (!existsSync(flagOf(job.admission))) if (!(await work(job, 5))) return;
  say(job, { stage: 'decode-buffer' });
  for (let index = job.resume; index < job.tokens; index++) {
    if (!(await work(job, 30))) return;
    say(job, { first: index, tokens: [tokenOf(job.request, index)] });
  }
  end(job, { stage: 'request' });
}

process.on('message', (message) => {
  if (message.revoke !== undefined) {
    const job = running.get(message.revoke);
    if (job) end(job, { failed: message.why });
    return;
  }
  running.set(message.admission, message);
  write('begin', message.admission, message.request);
  void (role === 'prefill' ? prefill(message) : decode(message));
});
process.on('disconnect', () => {
  write('gone', 0);
  process.exit();
});
