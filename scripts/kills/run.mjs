/** Kills processes of a serving cluster under load: every request must end once for its client, with all its tokens. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { RequestClient } from '../../dist/scheduler-client/index.js';
import { KillCluster } from './cluster.mjs';
import { overlaps } from './journals.mjs';
import { tokenOf } from './tokens.mjs';

const clients = 2;
const outstanding = 32;
const settleMs = 60_000;

/** Front ends that always have so many requests under way, and look at all that they hear. */
class Load {
  submitted = 0;
  attempts = {};
  outcomes = {};
  violations = [];
  open = new Set();
  #stopped = false;
  #clients;

  constructor(endpoints) {
    this.#clients = Array.from(
      { length: clients },
      (_, i) => new RequestClient({ endpoints, model: 'demo', client: `front-${i}` }),
    );
  }

  start() {
    for (let i = 0; i < outstanding; i++) void this.#lane();
  }

  stop() {
    this.#stopped = true;
  }

  async #lane() {
    while (!this.#stopped) await this.#one();
  }

  async #one() {
    const index = this.submitted++;
    const front = index % clients;
    const key = `turn-${index}`;
    const maxNewTokens = 1 + (index % 12);
    this.open.add(key);
    const submitted = this.#clients[front].submit({
      ...{ key, promptTokens: 1024, hitTokens: 512, maxNewTokens },
    });
    const seen = [];
    let outcome = 'completed';
    try {
      for await (const { first, tokens } of submitted.tokens()) {
        if (first !== seen.length)
          this.violations.push(`${key}: token ${first} came after ${seen.length} tokens`);
        seen.push(...tokens);
      }
      const { attempts } = await submitted.ended;
      this.attempts[attempts] = (this.attempts[attempts] ?? 0) + 1;
      if (seen.length !== maxNewTokens)
        this.violations.push(`${key}: ${seen.length} tokens of ${maxNewTokens}`);
    } catch (error) {
      outcome = error.code ?? String(error);
      this.violations.push(`${key} ended with ${error.message}`);
    }
    const wrong = seen.findIndex((token, i) => token !== tokenOf(`front-${front}/${key}`, i));
    if (wrong >= 0) this.violations.push(`${key}: token ${wrong} is not what it generates`);
    this.open.delete(key);
    this.outcomes[outcome] = (this.outcomes[outcome] ?? 0) + 1;
  }

  async close() {
    await Promise.all(this.#clients.map((client) => client.close()));
  }
}

async function until(holds, limitMs) {
  const late = performance.now() + limitMs;
  while (!holds() && performance.now() < late) await sleep(20);
}

export async function killTests({ kills, etcd = false, note = () => undefined }) {
  const folder = mkdtempSync(join(tmpdir(), 'dualpath-kills-'));
  const startedMs = performance.now();
  const cluster = await KillCluster.open(folder, { etcd });
  const load = new Load(cluster.endpoints);
  const killed = {};
  try {
    load.start();
    await until(() => load.outcomes.completed > outstanding, settleMs);
    for (let i = 0; i < kills; i++) {
      const kind = cluster.kinds[i % cluster.kinds.length];
      await cluster.kill(kind);
      killed[kind] = (killed[kind] ?? 0) + 1;
      note(`${i + 1} of ${kills} kills, ${load.outcomes.completed} requests completed`);
      await sleep(100 + Math.random() * 900);
    }
    load.stop();
    await until(() => load.open.size === 0, settleMs);
    for (const key of load.open)
      load.violations.push(`${key} has not ended ${settleMs / 1000} s after the last kill`);
    const { leases, found } = overlaps(folder, cluster.killedNs);
    return {
      ...{ kills, killed, etcd, requests: load.submitted, outcomes: load.outcomes },
      ...{ attempts: load.attempts, leases, seconds: (performance.now() - startedMs) / 1000 },
      violations: [...load.violations, ...found],
    };
  } finally {
    await load.close();
    await cluster.close();
    rmSync(folder, { recursive: true, force: true });
  }
}
