/** The processes of a kill test: schedulers, leaders with their engines, and etcd members; killed with SIGKILL, started again. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { SchedulerProcess } from '../../dist/hosts/index.js';
import { EtcdMembers } from './etcd.mjs';

const groupsOfRole = 2;
const enginesOfGroup = 2;
export const leaseS = 2;

function isAlive(pid) {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}

class Leader {
  /** By name, of the newest incarnation. */
  engines = new Map();
  #child;
  #argument;
  #onKilled;

  constructor(argument, onKilled) {
    this.#argument = argument;
    this.#onKilled = onKilled;
    this.#start();
  }

  #start() {
    this.#child = spawn(
      process.execPath,
      [join(import.meta.dirname, 'leader.mjs'), JSON.stringify(this.#argument)],
      { stdio: ['pipe', 'pipe', 'inherit'] },
    );
    this.#child.stdin.on('error', () => undefined);
    createInterface({ input: this.#child.stdout }).on('line', (line) => {
      const [, name, pid] = /^engine (\S+) (\d+)$/.exec(line) ?? [];
      if (name) this.engines.set(name, Number(pid));
    });
  }

  /** Its engines end with it; a new leader may say that they are gone only when they are. */
  async kill() {
    const child = this.#child;
    child.kill('SIGKILL');
    await once(child, 'exit');
    while ([...this.engines.values()].some(isAlive)) await sleep(5);
    this.engines.clear();
    await sleep(Math.random() * 500);
    this.#start();
  }

  /** Its leader starts it again. */
  killEngine() {
    const names = [...this.engines.keys()];
    const name = names[Math.floor(Math.random() * names.length)];
    if (name === undefined || !isAlive(this.engines.get(name))) return false;
    const pid = this.engines.get(name);
    process.kill(pid, 'SIGKILL');
    this.#onKilled(name, pid);
    return true;
  }

  async close() {
    this.#child.stdin.end();
    if (this.#child.exitCode === null && this.#child.signalCode === null) await once(this.#child, 'exit');
  }
}

export class KillCluster {
  /** process.hrtime() of when each engine process was killed, by name and process. */
  killedNs = new Map();
  #schedulers = [];
  #leaders = [];
  #etcd;

  static async open(folder, { etcd }) {
    const cluster = new KillCluster();
    const args = ['--lease', String(leaseS), '--max-tries', '20', '--no-explain'];
    if (etcd) {
      cluster.#etcd = await EtcdMembers.start(folder, 3);
      args.push('--membership', `etcd://${cluster.#etcd.endpoints.join(',')}/kills`);
    }
    for (let i = 0; i < (etcd ? 2 : 1); i++) cluster.#schedulers.push(await SchedulerProcess.start(args));
    cluster.endpoints = cluster.#schedulers.map(({ endpoint }) => endpoint);
    for (const role of ['prefill', 'decode']) {
      for (let g = 0; g < groupsOfRole; g++) {
        const group = `${role}-${g}`;
        const engines = Array.from({ length: enginesOfGroup }, (_, e) => `${group}-${e}`);
        const argument = { group, role, engines, endpoints: cluster.endpoints, model: 'demo', folder };
        cluster.#leaders.push(
          new Leader(argument, (name, pid) =>
            cluster.killedNs.set(`${name}-${pid}`, process.hrtime.bigint()),
          ),
        );
      }
    }
    return cluster;
  }

  /** What may be killed. */
  get kinds() {
    return ['engine', 'leader', 'scheduler', ...(this.#etcd ? ['etcd'] : [])];
  }

  /** Resolves when another one has been started in its place. */
  async kill(kind) {
    const any = (all) => all[Math.floor(Math.random() * all.length)];
    if (kind === 'scheduler') await any(this.#schedulers).killAndRestart();
    else if (kind === 'etcd') await this.#etcd.killAndRestart();
    else if (kind === 'leader') await any(this.#leaders).kill();
    else while (!any(this.#leaders).killEngine()) await sleep(20);
  }

  async close() {
    await Promise.all(this.#leaders.map((leader) => leader.close()));
    await Promise.all(this.#schedulers.map((scheduler) => scheduler.close()));
    await this.#etcd?.close();
  }
}
