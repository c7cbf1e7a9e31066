import { execFileSync } from 'node:child_process';
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { askArbitration, liveProbes, liveView } from '../../src/host-view/index.js';
import { arbitrationOf, defaultQos } from '../../src/qos/index.js';

const folder = mkdtempSync(join(tmpdir(), 'dualpath-probes-'));
afterAll(() => rmSync(folder, { recursive: true }));

describe('umad', () => {
  const library = join(folder, 'libumad.so');
  const source = join(import.meta.dirname, 'standin-ibumad.c');
  // A sanitizer that is loaded into this process has no business in the compiler.
  const env = { ...process.env, LD_PRELOAD: '' };
  execFileSync('g++', ['-x', 'c', '-shared', '-fPIC', '-o', library, source], { env });

  it('tells the tables of a port', () => {
    const { tables, problem } = askArbitration('standin0', 1, library);
    expect(problem).toBeNull();
    const weights = (table: readonly { lane: number; weight: number }[]): object[] =>
      table.filter(({ lane, weight }) => lane > 0 || weight > 0);
    const wanted = arbitrationOf(defaultQos);
    expect(tables!.low).toHaveLength(8);
    expect(weights(tables!.low)).toEqual(weights(wanted.low));
    expect(weights(tables!.high)).toEqual(weights(wanted.high));
    expect(tables).toMatchObject({ highLimit: 240, lanes: 4, widthActive: 1, widthSupported: 4 });
    expect(tables!.slToVl).toEqual([0, 1, 2, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 15]);
  });

  it('says why not', () => {
    expect(askArbitration('standin1', 1, library).problem).toMatch(/ENODEV/);
    expect(askArbitration('standin0', 1, 'libibumad-none.so').problem).toMatch(/libibumad3/);
    process.env['STANDIN_UMAD_DENIED'] = '1';
    try {
      expect(askArbitration('standin0', 1, library).problem).toMatch(/EACCES.*as root/);
    } finally {
      delete process.env['STANDIN_UMAD_DENIED'];
    }
  });
});

describe('this host', () => {
  it('is asked for io_uring and O_DIRECT, and nothing is left behind', () => {
    expect([true, false]).toContain(liveProbes.ioUring().allowed);
    const answer = liveProbes.directIo(folder);
    if (answer.works === true) expect([512, 1024, 2048, 4096]).toContain(answer.alignmentBytes);
    else expect(answer).toMatchObject({ works: false, errno: 'EINVAL' });
    expect(readdirSync(folder).filter((name) => name.startsWith('.'))).toEqual([]);
    const missing = liveProbes.directIo(join(folder, 'missing'));
    expect(missing).toMatchObject({ works: false, step: 'open', errno: 'ENOENT' });
    expect(liveProbes.fileSystem(folder)).toMatchObject({ problem: null });
    expect(liveProbes.fileSystem(join(folder, 'missing')).problem).toMatch(/ENOENT/);
  });

  it('answers commands, or says what is missing', () => {
    const view = liveView();
    expect(view.command('echo', 'a', 'b')).toEqual({ output: 'a b\n', problem: null });
    expect(view.command('dualpath-none').problem).toMatch(/there is no command/);
    expect(view.command('false').problem).toBe('exit status 1');
    expect(view.read('/proc/self/none')).toEqual({ text: null, problem: 'missing' });
  });
});
