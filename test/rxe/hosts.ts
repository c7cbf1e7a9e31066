/** Hosts with soft-RoCE for a test file: commands run on them, what they wrote comes back. */
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { startRxe, type RxeOptions } from '../../src/rxe/index.js';

export const cli = 'node dist/cli/main.js';

export interface HostsRun {
  readonly statuses: readonly number[];
  /** Everything that host 1, 2 wrote. */
  readonly output: readonly string[];
  /** A file of $DUALPATH_OUT. */
  readonly file: (name: string) => Buffer;
  readonly json: (name: string) => unknown;
  /** Removes $DUALPATH_OUT. */
  readonly remove: () => void;
}

/** Runs a bash command line on each host; one or two. */
export async function runOnHosts(
  lines: readonly string[],
  options: Partial<Omit<RxeOptions, 'commands' | 'out' | 'capture'>> & { capture?: string } = {},
): Promise<HostsRun> {
  const out = mkdtempSync(join(tmpdir(), 'dualpath-rxe-'));
  const output = lines.map(() => '');
  const take = (host: number, chunk: Buffer): void => void (output[host - 1] += chunk.toString());
  const { capture, ...rest } = options;
  const hosts = await startRxe({
    timeLimitMs: 420_000,
    onStdout: take,
    onStderr: take,
    ...rest,
    ...(capture === undefined ? {} : { capture: join(out, capture) }),
    commands: lines.map((line) => ['/bin/bash', '-c', line]),
    out,
  });
  try {
    const statuses = await hosts.statuses;
    const file = (name: string): Buffer => readFileSync(join(out, name));
    return {
      statuses,
      output,
      file,
      json: (name) => JSON.parse(file(name).toString()) as unknown,
      remove: () => rmSync(out, { recursive: true, force: true }),
    };
  } catch (error) {
    rmSync(out, { recursive: true, force: true });
    throw error;
  } finally {
    await hosts.close();
  }
}
