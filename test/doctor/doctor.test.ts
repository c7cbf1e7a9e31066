import { afterAll, describe, expect, it } from 'vitest';
import { checks, diagnose, type Diagnosis } from '../../src/doctor/index.js';
import { defaultQos } from '../../src/qos/index.js';
import { fabricFaults } from './fabric-faults.js';
import { HostTree, soundHost, type PlantedHost } from './host.js';
import { machineFaults } from './machine-faults.js';

const tree = new HostTree();
afterAll(() => tree.close());

const diagnosed = (host: PlantedHost): Diagnosis =>
  diagnose(tree.view(host), { description: defaultQos, store: '/kv' });
const faults = [...fabricFaults, ...machineFaults];

describe('a host that is in order', () => {
  it('has nothing reported, by any check', () => {
    const { findings, counts } = diagnosed(soundHost());
    expect(findings.filter(({ severity }) => severity !== 'ok')).toEqual([]);
    expect(findings.map(({ id }) => id)).toEqual(checks.map(({ id }) => id));
    expect(counts).toEqual({ ok: checks.length, note: 0, warning: 0, error: 0, unknown: 0 });
  });
});

describe('a planted fault', () => {
  it.each(faults)('$id: $name', ({ id, severity, found, remedy, plant, also }) => {
    const host = soundHost();
    plant(host);
    const reported = diagnosed(host).findings.filter((finding) => finding.severity !== 'ok');
    const finding = reported.find((one) => one.id === id);
    expect(finding, JSON.stringify(reported)).toMatchObject({ severity });
    expect(finding!.found).toMatch(found);
    expect(finding!.remedy).toMatch(remedy);
    expect(finding!.why).not.toBe('');
    // Nothing else is reported because of it.
    expect(reported.filter((one) => one.id !== id && !also.includes(one.id))).toEqual([]);
  });

  it('there is for every check', () => {
    expect(faults.length).toBeGreaterThan(25);
    expect([...new Set(faults.map(({ id }) => id))].sort()).toEqual(checks.map(({ id }) => id).sort());
  });
});

describe('the report', () => {
  it('says unknown where a check cannot be carried out, and goes on', () => {
    const host = soundHost();
    const ioUring = (): never => {
      throw new Error('no such call');
    };
    host.probes = { ...host.probes, ioUring };
    const { findings, counts } = diagnosed(host);
    const found = 'the check failed: no such call';
    expect(findings.find(({ id }) => id === 'io-uring')).toMatchObject({ severity: 'unknown', found });
    expect(counts.ok).toBe(checks.length - 1);
  });
});
