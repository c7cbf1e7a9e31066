import { spawnSync } from 'node:child_process';
import { closeSync, ftruncateSync, openSync } from 'node:fs';
import { DualPathError } from '../errors/index.js';
import { commandEnvironment } from './packages.js';
import type { GuestDisk } from './machine.js';

/** A disk with an empty ext4 file system, in a sparse file. @throws RDMA_UNAVAILABLE when mkfs.ext4 fails */
export function makeDisk(path: string, sizeMiB: number): GuestDisk {
  const file = openSync(path, 'w');
  ftruncateSync(file, sizeMiB * 2 ** 20);
  closeSync(file);
  const { status, stderr, error } = spawnSync('mkfs.ext4', ['-q', '-F', path], {
    encoding: 'utf8',
    env: commandEnvironment,
  });
  if (status === 0) return { path };
  throw new DualPathError('RDMA_UNAVAILABLE', `mkfs.ext4 ${path}: ${error?.message ?? stderr}`);
}
