/** A stand-in for libibverbs, compiled when a test asks for it, and a sysfs to go with it. */
import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';

export interface StandIn {
  readonly library: string;
  readonly sysfs: string;
  readonly remove: () => void;
}

export function makeStandIn(): StandIn {
  const folder = mkdtempSync(join(tmpdir(), 'dualpath-rdma-'));
  const library = join(folder, 'libstandin.so');
  const source = join(import.meta.dirname, 'standin-ibverbs.c');
  // A sanitizer that is loaded into this process has no business in the compiler.
  const env = { ...process.env, LD_PRELOAD: '' };
  execFileSync('g++', ['-x', 'c', '-shared', '-fPIC', '-o', library, source], { env });
  const sysfs = join(folder, 'infiniband');
  const write = (path: string, text: string): void => {
    mkdirSync(dirname(join(sysfs, path)), { recursive: true });
    writeFileSync(join(sysfs, path), `${text}\n`);
  };
  const port = 'standin_roce0/ports/1';
  write('standin_roce0/node_guid', '0000:0000:0000:0002');
  write(`${port}/state`, '4: ACTIVE');
  write(`${port}/link_layer`, 'Ethernet');
  write(`${port}/lid`, '0x0');
  for (const [index, gid, type] of [
    [0, '0000:0000:0000:0000:0000:ffff:0a00:0007', 'IB/RoCE v1'],
    [1, 'fe80:0000:0000:0000:0000:0000:0000:0001', 'RoCE v2'],
    [2, '0000:0000:0000:0000:0000:0000:0000:0000', 'RoCE v2'],
    [3, '0000:0000:0000:0000:0000:ffff:0a00:0007', 'RoCE v2'],
  ] as const) {
    write(`${port}/gids/${index}`, gid);
    write(`${port}/gid_attrs/types/${index}`, type);
    write(`${port}/gid_attrs/ndevs/${index}`, 'eth7');
  }
  mkdirSync(join(sysfs, 'standin_ib0'), { recursive: true });
  symlinkSync('../../../0000:3b:00.0', join(sysfs, 'standin_ib0/device'));
  write('kernel_only0/ports/1/state', '1: DOWN');
  write('kernel_only0/ports/1/link_layer', 'InfiniBand');
  return { library, sysfs, remove: () => rmSync(folder, { recursive: true }) };
}
