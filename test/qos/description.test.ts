import { describe, expect, it } from 'vitest';
import { defaultTrafficClasses } from '../../src/rdma/index.js';
import { defaultQos, parseQos, qosDocument, trafficClassesOf } from '../../src/qos/index.js';

const of =
  (value: unknown): (() => unknown) =>
  () =>
    parseQos(value, 'qos.json');

describe('a description of classes', () => {
  it("is the paper's by default, with the classes that the transport has", () => {
    expect(trafficClassesOf(defaultQos)).toEqual(defaultTrafficClasses);
    expect(defaultQos).toMatchObject({ highLimit: 240, lowTable: 'every_lane' });
  });

  it('comes back from its document', () => {
    const changed = parseQos(
      {
        classes: {
          kv: { share: 0.2, dscp: 8, service_level: 5, traffic_class: 2 },
          other: { share: 0.2 },
          control: { share: 0.2 },
          inference: { share: 0.4 },
        },
        high_limit: 'from_shares',
      },
      'test',
    );
    expect(changed.classes.kv).toEqual({
      ...{ share: 0.2, priority: 'low', serviceLevel: 5, virtualLane: 2 },
      ...{ dscp: 8, trafficClass: 2, lossless: true },
    });
    expect(parseQos(qosDocument(changed), 'test')).toEqual(changed);
  });

  it.each([
    [{ classes: { kv: { share: 2 } } }, /classes\.kv\.share is 2; expected a number above 0 and below 1/],
    [{ classes: { kv: { dscp: 64 } } }, /classes\.kv\.dscp is 64; expected a whole number from 0 to 63/],
    [{ classes: { kv: { service_level: 16 } } }, /service_level is 16; .* from 0 to 15/],
    [{ classes: { kv: { vl: 1 } } }, /unknown key 'vl' in classes\.kv/],
    [{ high_limit: 255 }, /high_limit is 255; expected a whole number from 1 to 254/],
    [{ classes: { kv: { share: 0.5 } } }, /shares are .* = 1\.49; together they must be 1/],
    [{ classes: { kv: { priority: 'high' } } }, /no class has priority 'low'/],
    [{ classes: { kv: { dscp: 26 } } }, /inference and kv have the same dscp, 26/],
    [{ classes: { kv: { service_level: 1 } } }, /inference and kv have the same service_level, 1/],
    [{ classes: { kv: { virtual_lane: 1 } } }, /inference shares virtual_lane 1 with a class of another/],
    [{ classes: { kv: { traffic_class: 3 } } }, /inference shares traffic_class 3/],
    ['kv', /qos\.json: the document is "kv"/],
  ])('%j is refused', (value, message) => {
    expect(of(value)).toThrow(message);
  });
});
