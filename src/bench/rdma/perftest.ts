/** perftest's tools, the yardstick of RDMA: run as they are, with the same sizes, list, depth and class. */
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { DualPathError } from '../../errors/index.js';

export const perftestTools = ['ib_write_bw', 'ib_read_bw', 'ib_read_lat', 'ib_write_lat'] as const;
export type PerftestTool = (typeof perftestTools)[number];

const waiting = /Waiting for client to connect/;
const startLimitMs = 20_000;
const mostOutputBytes = 1 << 24;

interface Running {
  readonly child: ChildProcess;
  readonly ended: Promise<string>;
}

/** Tools that this process has started. */
export class Tools {
  readonly #running = new Map<number, Running>();
  #next = 1;

  /** @throws INVALID_ARGUMENT when the tool is not perftest's or not installed */
  async start(tool: string, args: readonly string[]): Promise<number> {
    if (!(perftestTools as readonly string[]).includes(tool)) {
      throw new DualPathError('INVALID_ARGUMENT', `'${tool}' is none of ${perftestTools.join(', ')}`);
    }
    // Line by line, so that a server's word that it waits is seen; and gone with this process.
    const command = ['--pdeathsig', 'KILL', '--', 'stdbuf', '-oL', tool, ...args];
    const child = spawn('setpriv', command, { stdio: ['ignore', 'pipe', 'pipe'] });
    let stdout = '';
    let stderr = '';
    const listening = new Promise<void>((resolve) => {
      child.stdout.on('data', (chunk: Buffer) => {
        if (stdout.length < mostOutputBytes) stdout += chunk.toString();
        if (waiting.test(stdout)) resolve();
      });
    });
    child.stderr.on('data', (chunk: Buffer) => void (stderr += chunk.toString()));
    const ended = once(child, 'close').then(([code, signal]) => {
      if (code === 0 || signal !== null) return stdout;
      const why = `${stdout}\n${stderr}`.trim().split('\n').slice(-3).join('; ');
      const missing = code === 127 ? '; install perftest' : '';
      throw new DualPathError(
        'RDMA_FAILED',
        `${tool} ${args.join(' ')} ended with ${code}: ${why}${missing}`,
      );
    });
    ended.catch(() => undefined);
    this.#running.set(this.#next, { child, ended });
    const isServer = !/^[\d.:a-f]+$/.test(args.at(-1) ?? '');
    if (isServer) {
      const timer = setTimeout(() => child.kill('SIGKILL'), startLimitMs);
      await Promise.race([listening, ended]);
      clearTimeout(timer);
    }
    return this.#next++;
  }

  async output(id: number): Promise<string> {
    const running = this.#of(id);
    try {
      return await running.ended;
    } finally {
      this.#running.delete(id);
    }
  }

  async stop(id: number): Promise<void> {
    const { child, ended } = this.#of(id);
    child.kill('SIGKILL');
    await ended.catch(() => undefined);
    this.#running.delete(id);
  }

  async stopAll(): Promise<void> {
    for (const id of [...this.#running.keys()]) await this.stop(id);
  }

  #of(id: number): Running {
    const running = this.#running.get(id);
    if (running === undefined) throw new DualPathError('CLOSED', `there is no tool ${id}`);
    return running;
  }
}

export interface PerftestRun {
  readonly tool: PerftestTool;
  readonly device: string;
  readonly port: number;
  readonly gidIndex: number;
  readonly bytes: number;
  readonly iterations: number;
  readonly queuePairs: number;
  /** Of a bandwidth test: requests outstanding, and requests a post. */
  readonly depth?: number;
  readonly chain?: number;
  readonly trafficClass: number;
  readonly serviceLevel: number;
  /** TCP port for its handshake. */
  readonly controlPort: number;
}

/** What both sides are started with; the client adds the server's address. */
export function perftestArguments(run: PerftestRun): string[] {
  const bandwidth = run.tool.endsWith('_bw');
  const reads = run.tool.startsWith('ib_read');
  return [
    ...['-d', run.device, '-i', String(run.port), '-p', String(run.controlPort), '-F'],
    ...(run.gidIndex < 0 ? [] : ['-x', String(run.gidIndex), `--tclass=${run.trafficClass}`]),
    ...['-S', String(run.serviceLevel), '-s', String(run.bytes), '-n', String(run.iterations), '-u', '17'],
    // As this project's queue pairs are connected: one read outstanding.
    ...(reads ? ['-o', '1'] : []),
    ...(bandwidth
      ? [
          '-q',
          String(run.queuePairs),
          '-t',
          String(run.depth),
          '-l',
          String(run.chain),
          '-Q',
          String(run.chain),
          '-N',
        ]
      : ['-U']),
  ];
}

/** Average bandwidth of a bandwidth test, in bytes per second: the fourth column of its table, in MiB/s. */
export function parseBandwidth(text: string): number {
  const row = /^\s*\d+\s+\d+\s+[\d.]+\s+([\d.]+)\s+[\d.]+\s*$/m.exec(text);
  const value = Number(row?.[1]);
  if (value > 0) return value * 2 ** 20;
  throw new DualPathError('RDMA_FAILED', `perftest printed no bandwidth: ${text.slice(-500)}`);
}

/** Each sample of a latency test run with -U, in microseconds: the second column of `iteration, us` lines. */
export function parseLatencies(text: string): number[] {
  const samples = [...text.matchAll(/^\s*\d+,\s*([\d.]+)\s*$/gm)].map(([, value]) => Number(value));
  if (samples.length > 0) return samples;
  throw new DualPathError('RDMA_FAILED', `perftest printed no latencies: ${text.slice(-500)}`);
}
