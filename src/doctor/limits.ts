/** /proc/self/limits and capabilities. */
import type { HostView } from '../host-view/index.js';

/** The soft limit of a row such as 'Max open files'; null: unlimited, undefined: not there. */
export function softLimit(view: HostView, row: string): number | null | undefined {
  const line = (view.read('/proc/self/limits').text ?? '').split('\n').find((one) => one.startsWith(row));
  const [, soft] = /^\s+(\S+)/.exec(line?.slice(row.length) ?? '') ?? [];
  if (soft === undefined) return undefined;
  return soft === 'unlimited' ? null : Number(soft);
}

export function statusField(view: HostView, name: string): string | undefined {
  const status = view.read('/proc/self/status').text ?? '';
  return new RegExp(`^${name}:\\s*(.*)$`, 'm').exec(status)?.[1]?.trim();
}

/** capabilities(7). */
const capabilityBits = { ipcLock: 14, sysAdmin: 21 } as const;

export function hasCapability(view: HostView, name: keyof typeof capabilityBits): boolean {
  const effective = BigInt(`0x${statusField(view, 'CapEff') ?? '0'}`);
  return ((effective >> BigInt(capabilityBits[name])) & 1n) === 1n;
}

/** "0-3,8" as numbers. */
export function cpuList(text: string): Set<number> {
  const cpus = new Set<number>();
  for (const part of text.split(',')) {
    const [, first, last = first] = /^(\d+)(?:-(\d+))?$/.exec(part.trim()) ?? [];
    if (first === undefined) continue;
    for (let cpu = Number(first); cpu <= Number(last) && cpus.size < 4096; cpu++) cpus.add(cpu);
  }
  return cpus;
}
