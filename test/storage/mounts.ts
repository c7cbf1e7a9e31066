/** Small file systems of their own, for tests that fill them up or make them read-only. Needs root. */
import { spawnSync } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { onTestFinished, type TestContext } from 'vitest';
import { scratchDirectory } from '../traffic/support.js';

export const fileSystems = ['tmpfs', 'ext4'] as const;

function run(context: TestContext, command: string, ...args: string[]): void {
  const { error, status, stderr } = spawnSync(command, args, {
    encoding: 'utf8',
    env: { ...process.env, PATH: `${process.env['PATH'] ?? ''}:/usr/sbin:/sbin` },
  });
  // Where mounting is not allowed the test cannot be had; its report says why.
  if (error !== undefined || status !== 0) context.skip(`${command} failed: ${error?.message ?? stderr}`);
}

export interface Mounted {
  readonly path: string;
  remount(options: string): void;
}

/** A file system of `sizeKiB`, unmounted when the test ends. */
export function mount(context: TestContext, type: (typeof fileSystems)[number], sizeKiB: number): Mounted {
  const scratch = scratchDirectory();
  const path = join(scratch, 'mount');
  mkdirSync(path);
  if (type === 'tmpfs') {
    run(context, 'mount', '-t', 'tmpfs', '-o', `size=${sizeKiB}k`, 'tmpfs', path);
  } else {
    const image = join(scratch, 'image');
    writeFileSync(image, '');
    run(context, 'mkfs.ext4', '-q', '-F', '-m', '0', image, `${sizeKiB}k`);
    run(context, 'mount', '-o', 'loop', image, path);
  }
  // Finishing functions run last in, first out: before the directory is removed.
  onTestFinished(() => void spawnSync('umount', ['-l', path]));
  return { path, remount: (options) => run(context, 'mount', '-o', `remount,${options}`, path) };
}
