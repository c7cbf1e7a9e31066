import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { paperArbitration, type Arbitration } from '../../src/rdma/index.js';
import {
  arbitrationOf,
  checkOpenSm,
  defaultQos,
  openSmGroups,
  openSmOptions,
  parseOpenSm,
  parseQos,
  qosClassNames,
  sharesOf,
  slToVlOf,
  type QosDescription,
} from '../../src/qos/index.js';
import { simulate } from '../rdma/vl-arbiter.js';

const exact = (kv: number): QosDescription =>
  parseQos(
    {
      classes: Object.fromEntries(
        qosClassNames.map((name) => [name, { share: name === 'kv' ? kv : (1 - kv) / 3 }]),
      ),
      high_limit: 'from_shares',
      low_table: 'low_lanes',
    },
    'test',
  );

/** The part of each class, packet by packet. */
function measured(arbitration: Arbitration, description: QosDescription): Record<string, number> {
  const lanes = qosClassNames.map((name) => description.classes[name].virtualLane);
  const sent = simulate(arbitration, lanes, 60_000);
  return Object.fromEntries(
    qosClassNames.map((name) => [name, sent[description.classes[name].virtualLane]!]),
  );
}

describe('InfiniBand', () => {
  it("has the paper's table, option by option", () => {
    expect(openSmOptions(defaultQos)).toEqual([
      'qos TRUE',
      ...['', 'ca_', 'sw0_', 'swe_', 'rtr_'].flatMap((group) => [
        `qos_${group}max_vls 4`,
        `qos_${group}high_limit 240`,
        `qos_${group}vlarb_high 0:192,1:192,2:0,3:192`,
        `qos_${group}vlarb_low 0:192,1:192,2:64,3:192`,
        `qos_${group}sl2vl 0,1,2,3,0,0,0,0,0,0,0,0,0,0,0,0`,
      ]),
    ]);
    expect(arbitrationOf(defaultQos)).toEqual(paperArbitration);
  });

  it("has shares as the arbiter gives them, and the paper's floor for KV-Cache", () => {
    const shares = sharesOf(paperArbitration, defaultQos);
    expect(shares.kv).toBeCloseTo(1 / 2410, 12);
    expect(sharesOf(paperArbitration, defaultQos, ['inference', 'kv']).kv).toBeCloseTo(1 / 964, 12);
    const packets = measured(paperArbitration, defaultQos);
    for (const name of qosClassNames) expect(Math.abs(packets[name]! - shares[name])).toBeLessThan(0.002);
  });

  it('keeps what is asked for with a limit from the shares', () => {
    fc.assert(
      fc.property(fc.double({ min: 0.005, max: 0.49, noNaN: true }), (kv) => {
        const description = exact(kv);
        const arbitration = arbitrationOf(description);
        const floor = sharesOf(arbitration, description).kv;
        expect(floor).toBeGreaterThanOrEqual(kv - 1e-9);
        // No more than a whole limit allows.
        expect(floor).toBeLessThanOrEqual(1 / arbitration.highLimit);
        expect(Math.abs(measured(arbitration, description)['kv']! - floor)).toBeLessThan(0.003);
      }),
      { numRuns: 30 },
    );
    expect(arbitrationOf(exact(0.01)).highLimit).toBe(99);
    expect(() => arbitrationOf(exact(0.6))).toThrow(/every second packet at most/);
  });

  it('maps service levels that nobody has with the unmarked traffic', () => {
    const description = parseQos({ classes: { kv: { service_level: 9 } } }, 'test');
    expect(slToVlOf(description)).toEqual([0, 1, 0, 3, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0]);
  });
});

describe('opensm.conf', () => {
  const written = openSmOptions(defaultQos).join('\n');

  it('comes back as it was written', () => {
    const { enabled, groups } = parseOpenSm(`# comment\n${written}\nlog_flags 0x03\n`);
    expect(enabled).toBe(true);
    expect([...groups.keys()]).toEqual([...openSmGroups]);
    for (const group of groups.values()) {
      expect(group).toEqual({ arbitration: paperArbitration, slToVl: slToVlOf(defaultQos), lanes: 4 });
    }
    expect(checkOpenSm(parseOpenSm(written), defaultQos, 'f').differences).toEqual([]);
  });

  it('without options is what OpenSM takes then, and differs in everything', () => {
    const { differences } = checkOpenSm(
      parseOpenSm('qos FALSE\nqos_high_limit (null)\n'),
      defaultQos,
      'opensm.conf',
    );
    expect(differences[0]).toMatchObject({ what: 'qos', wanted: 'TRUE' });
    const what = differences.filter(({ place }) => place.endsWith('qos_swe_*')).map((one) => one.what);
    expect(what).toEqual([
      'high-priority table',
      'low-priority table',
      'high-priority limit',
      'shares while every class is busy',
      'SL-to-VL map',
    ]);
  });

  it('of adapters alone leaves the switches different', () => {
    const adapters = written.replace(/^qos_(?!ca_)\w+_?vlarb_\w+ .*$/gm, '').replace(/^qos_vlarb.*$/gm, '');
    const places = checkOpenSm(parseOpenSm(adapters), defaultQos, 'f').differences.map(({ place }) => place);
    expect(new Set(places)).toEqual(new Set(['f, qos_*', 'f, qos_sw0_*', 'f, qos_swe_*', 'f, qos_rtr_*']));
  });

  it('that cannot be read names the option', () => {
    expect(() => parseOpenSm('qos_vlarb_high 0:x')).toThrow(/qos_vlarb_high: '0:x' is no LANE:WEIGHT/);
    expect(() => parseOpenSm('qos_ca_sl2vl 0,a')).toThrow(/qos_ca_sl2vl: 'a' is no number/);
  });
});
