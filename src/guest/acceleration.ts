import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Guest } from './guest.js';
import type { GuestImages } from './images.js';
import type { Acceleration } from './machine.js';

const probeLimitMs = 10_000;

/**
 * 'kvm' where a guest boots with it in a few seconds; /dev/kvm being there proves nothing. The answer is kept in the
 * cache until the host boots again.
 */
export async function chooseAcceleration(images: GuestImages): Promise<Acceleration> {
  if (!existsSync('/dev/kvm')) return 'tcg';
  const file = join(images.cache, 'acceleration.json');
  const boot = readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim();
  const kept = keptAnswer(file);
  if (kept?.boot === boot) return kept.acceleration;
  const acceleration = (await bootsWithKvm(images)) ? 'kvm' : 'tcg';
  writeFileSync(file, JSON.stringify({ boot, acceleration }));
  return acceleration;
}

function keptAnswer(file: string): { boot: string; acceleration: Acceleration } | undefined {
  try {
    const kept = JSON.parse(readFileSync(file, 'utf8')) as { boot: string; acceleration: Acceleration };
    return ['kvm', 'tcg'].includes(kept.acceleration) ? kept : undefined;
  } catch {
    return undefined;
  }
}

async function bootsWithKvm(images: GuestImages): Promise<boolean> {
  const guest = await Guest.start({
    images,
    script: 'true\n',
    acceleration: 'kvm',
    memoryMiB: 512,
    cpus: 1,
    disks: [],
    shares: [],
    limitMs: probeLimitMs,
  });
  const { status } = await guest.ended;
  await guest.close();
  return status === 0;
}
