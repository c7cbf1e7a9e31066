/** Small file systems of their own, for tests that fill them up or make them read-only. Needs root. */
import { spawnSync } from 'node:child_process';
import { copyFileSync, mkdirSync, writeFileSync } from 'node:fs';
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

function mountAt(context: TestContext, path: string, ...options: string[]): Mounted {
  mkdirSync(path);
  run(context, 'mount', ...options, path);
  // Finishing functions run last in, first out: before the directory is removed.
  onTestFinished(() => void spawnSync('umount', ['-l', path]));
  return { path, remount: (wanted) => run(context, 'mount', '-o', `remount,${wanted}`, path) };
}

/** A file system of `sizeKiB`, unmounted when the test ends. */
export function mount(context: TestContext, type: (typeof fileSystems)[number], sizeKiB: number): Mounted {
  if (type === 'ext4') return mountImage(context, sizeKiB);
  return mountAt(
    context,
    join(scratchDirectory(), 'mount'),
    '-t',
    'tmpfs',
    '-o',
    `size=${sizeKiB}k`,
    'tmpfs',
  );
}

export interface MountedImage extends Mounted {
  /** As after an error of the disk: read-only at once, whatever is open, with what was synced before. */
  fail(): void;
  /** What the disk holds, repaired and mounted elsewhere. */
  repaired(): Mounted;
}

export function mountImage(context: TestContext, sizeKiB: number): MountedImage {
  const scratch = scratchDirectory();
  const [image, copy] = [join(scratch, 'image'), join(scratch, 'copy')];
  writeFileSync(image, '');
  run(context, 'mkfs.ext4', '-q', '-F', '-m', '0', image, `${sizeKiB}k`);
  const mounted = mountAt(context, join(scratch, 'mount'), '-o', 'loop', image);
  return {
    ...mounted,
    fail: () => {
      run(context, 'sync', '-f', mounted.path);
      mounted.remount('abort');
    },
    repaired: () => {
      copyFileSync(image, copy);
      spawnSync('/usr/sbin/e2fsck', ['-p', copy]); // 1: repaired
      return mountAt(context, join(scratch, 'repaired'), '-o', 'loop', copy);
    },
  };
}
