import { execFileSync, spawnSync } from 'node:child_process';
import { describe, expect, it } from 'vitest';
import { Arena } from '../../src/memory/index.js';
import { errorOf } from '../transfer/support.js';

const built = new URL('../../dist/index.js', import.meta.url).href;

// Root may lock what it likes unless it gives that up; how far it can depends on the container.
const drops = [
  '',
  'setpriv --inh-caps=-all --bounding-set=-ipc_lock',
  'setpriv --reuid=65534 --clear-groups',
];
const capIpcLock = 14n;
const withoutLocking = drops.find((drop) => {
  const { stdout } = spawnSync('bash', ['-c', `${drop} cat /proc/self/status`], { encoding: 'utf8' });
  const effective = /^CapEff:\s*(\w+)$/m.exec(stdout)?.[1];
  return effective !== undefined && ((BigInt(`0x${effective}`) >> capIpcLock) & 1n) === 0n;
});

/** What a process with so little memory to lock says to an arena of 1 MiB. */
function underLimit(kibibytes: number, lock: 'require' | 'try', bytes: number): string {
  const script = `
    import { Arena } from ${JSON.stringify(built)};
    try {
      const arena = new Arena({ name: 'small', bytes: ${bytes}, lock: '${lock}', hugePages: false });
      console.log(JSON.stringify(arena.facts));
    } catch (error) {
      console.log(error.code + ': ' + error.message);
    }`;
  const command = `ulimit -l ${kibibytes} && exec ${withoutLocking} "$0" --input-type=module -e "$1"`;
  const { stdout, stderr } = spawnSync('bash', ['-c', command, process.execPath, script], {
    encoding: 'utf8',
  });
  return stdout.trim() || stderr;
}

describe('Arena', () => {
  it('is memory, shared with JavaScript', () => {
    const arena = new Arena({ name: 'a', bytes: 100_000, emulatedHbm: true, lock: 'none' });
    const bytes = new Uint8Array(arena.buffer);
    expect(bytes.length).toBe(100_000);
    expect(bytes.every((byte) => byte === 0)).toBe(true);
    bytes[99_999] = 7;
    expect(new Uint8Array(arena.buffer)[99_999]).toBe(7);
    expect(arena.facts).toMatchObject({ bytes: 100_000, locked: false, kind: 'emulated-hbm' });
    expect(new Arena({ name: 'b', bytes: 1 }).facts.kind).toBe('host');
  });

  it('outlives the object as long as somebody holds its buffer', async () => {
    const { setFlagsFromString } = await import('node:v8');
    const { runInNewContext } = await import('node:vm');
    setFlagsFromString('--expose-gc');
    const collect = runInNewContext('gc') as () => void;
    const bytes = new Uint8Array(new Arena({ name: 'gone', bytes: 4096, lock: 'none' }).buffer);
    for (let i = 0; i < 3; i++) {
      collect();
      await new Promise((resolve) => setImmediate(resolve));
    }
    expect(bytes.fill(9).every((byte) => byte === 9)).toBe(true);
  });

  it.each([0, -1, 1.5, Number.NaN, 2 ** 30 + 1, 2 ** 60])('of %s bytes is refused', async (bytes) => {
    expect((await errorOf(() => new Arena({ name: 'a', bytes }))).code).toBe('INVALID_ARGUMENT');
  });

  it('says how many bytes there may be', async () => {
    const { message } = await errorOf(() => new Arena({ name: 'big', bytes: 2 ** 30 + 1 }));
    expect(message).toBe(
      "arena 'big': 1073741825 bytes asked, 1 to 1073741824 allowed; use several arenas for more",
    );
    const lock = 'yes' as 'try';
    expect(await errorOf(() => new Arena({ name: 'a', bytes: 1, lock }))).toMatchObject({
      code: 'INVALID_ARGUMENT',
      message: expect.stringContaining("lock: 'none', 'try' or 'require' expected"),
    });
  });
});

describe('RLIMIT_MEMLOCK', () => {
  it('holds for a process without CAP_IPC_LOCK, which this one can start', () => {
    expect(withoutLocking).toBeDefined();
    expect(execFileSync('bash', ['-c', 'ulimit -l 64 && ulimit -l'], { encoding: 'utf8' }).trim()).toBe('64');
  });

  // ASan turns mlock into nothing that always succeeds: there is no failure to be seen then.
  const mlockIsReal = !(process.env['LD_PRELOAD'] ?? '').includes('libasan');
  const refused =
    /^MEMORY_LIMIT: arena 'small': locking 1048576 bytes failed: .*; RLIMIT_MEMLOCK is 65536 bytes: raise it with 'ulimit -l unlimited'/;

  it('too small: an arena that must be locked says which limit, and what helps', () => {
    expect(underLimit(64, 'require', 1 << 20)).toMatch(mlockIsReal ? refused : /"locked":true/);
  });

  it('too small: an arena that may be locked goes on without', () => {
    const facts: unknown = JSON.parse(underLimit(64, 'try', 1 << 20));
    expect(facts).toMatchObject({ bytes: 1 << 20, locked: !mlockIsReal });
  });

  it('large enough: it is locked', () => {
    expect(JSON.parse(underLimit(8192, 'require', 1 << 20))).toMatchObject({ locked: true });
  });
});
