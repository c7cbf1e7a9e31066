import { expect, it } from 'vitest';
import { Guest, guestImages, type GuestOptions } from '../../src/guest/index.js';

const limitMs = 60_000;

/** What a guest says of its boot, without its files: the kernel panics, for it finds no root. */
async function withoutInit(changed: Partial<GuestOptions>): Promise<{ said: string[]; panics: number }> {
  const { kernel, cache } = await guestImages();
  const said: string[] = [];
  const guest = await Guest.start({
    images: { kernel, cache, initramfs: import.meta.filename },
    script: 'true\n',
    acceleration: 'tcg',
    memoryMiB: 512,
    cpus: 1,
    disks: [],
    shares: [],
    limitMs,
    onProgress: (step) => said.push(step),
    ...changed,
  });
  try {
    expect((await guest.ended).status).toBeNull();
    return { said, panics: guest.console.split('Kernel panic - not syncing').length - 1 };
  } finally {
    await guest.close();
  }
}

it('a kernel that panics before any command ran is booted once more, and that is said', async () => {
  const { said, panics } = await withoutInit({});
  expect(said).toHaveLength(1);
  expect(said[0]).toMatch(/did not boot \(panic: VFS: Unable to mount root fs.*\); once more/);
  expect(panics).toBe(2);
});

it('one that ran out of time is not', async () => {
  expect((await withoutInit({ limitMs: 200 })).said).toEqual([]);
});
