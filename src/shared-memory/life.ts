/** Whether a process of this host still runs, told apart from a later one with its number. */
import { readFileSync } from 'node:fs';

export interface Life {
  readonly pid: number;
  /** In clock ticks after the boot (proc(5), stat: starttime). */
  readonly started: string;
}

/** Undefined when it has ended, whether or not anybody has asked how. */
export function lifeOf(pid: number): Life | undefined {
  let stat: string;
  try {
    stat = readFileSync(`/proc/${pid}/stat`, 'latin1');
  } catch {
    return undefined;
  }
  // The name, in parentheses, may hold anything.
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  const [state, threads, started] = [fields[0], Number(fields[17]), fields[19]!];
  // Its first thread may have ended before the others.
  const over = (state === 'Z' || state === 'X') && threads <= 1;
  return over ? undefined : { pid, started };
}

export function lives({ pid, started }: Life): boolean {
  return lifeOf(pid)?.started === started;
}
