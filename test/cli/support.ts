import { PassThrough } from 'node:stream';
import { run } from '../../src/cli/run.js';

export interface Ran {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** Runs a command line in this process. */
export async function dualpath(
  argv: readonly string[],
  options: { tty?: boolean; signal?: AbortSignal } = {},
): Promise<Ran> {
  const [stdout, stderr] = [
    new PassThrough(),
    Object.assign(new PassThrough(), { isTTY: options.tty === true }),
  ];
  const code = await run(argv, { stdout, stderr, signal: options.signal ?? new AbortController().signal });
  return { code, stdout: textOf(stdout), stderr: textOf(stderr) };
}

export function textOf(stream: PassThrough): string {
  return ((stream.read() as Buffer | null) ?? '').toString();
}
