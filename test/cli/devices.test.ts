import { describe, expect, it } from 'vitest';
import { dualpath } from './support.js';

describe('dualpath devices', () => {
  it('prints one document; its exit code says whether RDMA can be used here', async () => {
    const { code, stdout, stderr } = await dualpath(['devices', '--json']);
    const document = JSON.parse(stdout) as { devices: object[]; problem: string | null };
    expect(stderr).toBe('');
    expect(document.devices).toBeInstanceOf(Array);
    expect(code).toBe(document.problem === null ? 0 : 1);
    const text = await dualpath(['devices']);
    expect(text.code).toBe(code);
    expect(text.stdout).toMatch(/found by /);
    const { sharedObjects } = process.report.getReport() as { sharedObjects: string[] };
    expect(sharedObjects.filter((path) => path.endsWith('dualpath.node'))).toEqual([]);
    if (document.problem !== null) expect(text.stdout).toContain(`no RDMA: ${document.problem}`);
  });
});
