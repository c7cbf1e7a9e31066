/**
 * A host as its files, its commands and a few system calls show it. Everything that looks at a host goes through this, so that
 * the host of a test is a directory tree and a table of answers.
 */
import { spawnSync } from 'node:child_process';
import { accessSync, constants, existsSync, readdirSync, readFileSync, realpathSync } from 'node:fs';
import { basename, join } from 'node:path';
import { commandEnvironment } from '../guest/index.js';
import { liveProbes, type HostProbes } from './probes.js';

export type Reading =
  | { readonly text: string; readonly problem: null }
  | { readonly text: null; readonly problem: 'missing' | 'denied' };

/** What a command wrote to standard output; or why there is nothing. */
export type CommandAnswer =
  { readonly output: string; readonly problem: null } | { readonly output: null; readonly problem: string };

export interface HostView {
  /** In front of every path; '' on this host. */
  readonly root: string;
  readonly probes: HostProbes;
  /** A small file, without white space at its ends. */
  read(path: string): Reading;
  /** Whole and binary, such as a PCI device's configuration space; null: missing or denied. */
  bytes(path: string): Buffer | null;
  /** Names in a folder, sorted; none where it is missing or may not be read. */
  list(path: string): readonly string[];
  exists(path: string): boolean;
  /** Whether this user may read and write it. */
  mayOpen(path: string): boolean;
  /** Where a link leads to, links in it followed, without the root; null: nowhere. */
  resolve(path: string): string | null;
  command(name: string, ...args: readonly string[]): CommandAnswer;
}

const maxFileBytes = 1 << 20;
const commandLimitMs = 5000;

export class FileView implements HostView {
  readonly root: string;
  readonly probes: HostProbes;

  constructor(root: string, probes: HostProbes) {
    this.root = root;
    this.probes = probes;
  }

  read(path: string): Reading {
    try {
      const text = readFileSync(join(this.root, path), 'utf8');
      return { text: text.slice(0, maxFileBytes).trim(), problem: null };
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      return { text: null, problem: code === 'EACCES' || code === 'EPERM' ? 'denied' : 'missing' };
    }
  }

  bytes(path: string): Buffer | null {
    try {
      return readFileSync(join(this.root, path));
    } catch {
      return null;
    }
  }

  list(path: string): readonly string[] {
    try {
      return readdirSync(join(this.root, path)).sort();
    } catch {
      return [];
    }
  }

  exists(path: string): boolean {
    return existsSync(join(this.root, path));
  }

  mayOpen(path: string): boolean {
    try {
      accessSync(join(this.root, path), constants.R_OK | constants.W_OK);
      return true;
    } catch {
      return false;
    }
  }

  resolve(path: string): string | null {
    try {
      const real = realpathSync(join(this.root, path));
      return this.root === '' ? real : real.slice(realpathSync(this.root).length);
    } catch {
      return null;
    }
  }

  command(name: string, ...args: readonly string[]): CommandAnswer {
    const { error, status, stdout, stderr } = spawnSync(name, args, {
      encoding: 'utf8',
      env: commandEnvironment,
      timeout: commandLimitMs,
      maxBuffer: maxFileBytes,
    });
    if (error !== undefined) {
      const missing = (error as NodeJS.ErrnoException).code === 'ENOENT';
      return { output: null, problem: missing ? `there is no command ${name} here` : error.message };
    }
    if (status !== 0)
      return { output: null, problem: stderr.trim().split('\n')[0] || `exit status ${status}` };
    return { output: stdout, problem: null };
  }
}

export const liveView = (): HostView => new FileView('', liveProbes);

/** The whole number that a file holds, decimal or 0x..., or null. */
export function readNumber(view: HostView, path: string): number | null {
  const { text } = view.read(path);
  if (text === null || !/^-?(0x[0-9a-f]+|\d+)$/i.test(text)) return null;
  const value = Number(text);
  return Number.isSafeInteger(value) ? value : null;
}

export interface NetworkOfDevice {
  readonly device: string;
  /** Network devices of its GIDs and of its PCI function. */
  readonly netdevs: readonly string[];
  readonly isSoftware: boolean;
}

/** Which network devices an RDMA device lies on. */
export function networkOf(view: HostView, device: string): NetworkOfDevice {
  const folder = `/sys/class/infiniband/${device}`;
  const { text: parent } = view.read(`${folder}/parent`);
  const ports = view.list(`${folder}/ports`);
  const ofGids = ports.flatMap((port) => {
    const names = `${folder}/ports/${port}/gid_attrs/ndevs`;
    return view.list(names).flatMap((index) => view.read(`${names}/${index}`).text ?? []);
  });
  const found = [...(parent === null ? [] : [parent]), ...ofGids, ...view.list(`${folder}/device/net`)];
  return { device, netdevs: [...new Set(found.filter((name) => name !== ''))], isSoftware: parent !== null };
}

/** The PCI address of a device of a class, such as /sys/class/infiniband/mlx5_0, or null. */
export function pciAddressOf(view: HostView, classPath: string): string | null {
  const path = view.resolve(`${classPath}/device`);
  const name = path === null ? '' : basename(path);
  return /^[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$/i.test(name) ? name : null;
}
