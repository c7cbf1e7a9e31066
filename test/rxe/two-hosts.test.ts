import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { defaultTrafficClasses } from '../../src/rdma/index.js';
import { cli, runOnHosts, type HostsRun } from './hosts.js';
import { rocePackets, type RocePacket } from './pcap.js';

interface Numbers {
  readonly here: readonly number[];
  readonly there: readonly number[];
}
interface Wire {
  readonly kv: Numbers;
  readonly inference: Numbers;
  readonly flap: { readonly requests: number; readonly elapsedMs: number };
}

const [address1, address2] = ['10.77.0.1', '10.77.0.2'];
const acknowledge = 17;
const qos = `${cli} bench qos --samples 60 --samples-without-classes 20 --rounds 1 --json`;

let run: HostsRun;
let wire: Wire;
let packets: RocePacket[];

beforeAll(async () => {
  const line = (rest: string): string => `node test/rxe/wire.mjs && ${rest}`;
  run = await runOnHosts([line(`${qos} >$DUALPATH_OUT/qos.json`), line(qos)], { capture: 'wire.pcap' });
  expect(run.statuses, run.output.join('\n')).toEqual([0, 0]);
  wire = run.json('wire.json') as Wire;
  // The second half is another benchmark's, with queue pairs of its own numbers.
  packets = rocePackets(run.file('wire.pcap'));
});
afterAll(() => run.remove());

/** Packets to a class's queue pairs, by the host that sent them. */
function sentBy(source: string, { here, there }: Numbers): RocePacket[] {
  const numbers = source === address1 ? there : here;
  return packets.filter((packet) => packet.source === source && numbers.includes(packet.destinationQp));
}

const key = ({ source, destinationQp, psn, opcode }: RocePacket): string =>
  `${source} ${destinationQp} ${psn} ${opcode}`;

describe.each(['kv', 'inference'] as const)('on the wire, class %s', (name) => {
  it.each([address1, address2])(
    'carries its DSCP in every packet from %s, acknowledgements too',
    (source) => {
      const sent = sentBy(source, wire[name]);
      const { dscp } = defaultTrafficClasses[name];
      expect(sent.length).toBeGreaterThan(300);
      expect(sent.filter((packet) => packet.dscp !== dscp)).toEqual([]);
      expect(sent.some(({ opcode }) => opcode === acknowledge)).toBe(true);
      expect(sent.some(({ opcode }) => opcode !== acknowledge)).toBe(true);
    },
  );

  it('was seen to send again', () => {
    const requests = [...sentBy(address1, wire[name]), ...sentBy(address2, wire[name])].filter(
      ({ opcode }) => opcode !== acknowledge,
    );
    expect(new Set(requests.map(key)).size).toBeLessThan(requests.length);
  });
});

describe('a link that goes down for 0.3 s', () => {
  it('delays what is in flight and loses nothing', () => {
    expect(wire.flap.requests).toBe(1600);
    expect(wire.flap.elapsedMs).toBeGreaterThan(300);
  });
});

describe('bench qos', () => {
  it('measures all three cases by both programs, and what KV moved', () => {
    const result = run.json('qos.json') as Record<string, Record<string, number>> & {
      perftest: Record<string, Record<string, number>>;
    };
    for (const figures of [result, result.perftest]) {
      for (const name of ['idle', 'flood_with_classes', 'flood_without_classes']) {
        const { p50_us: p50, p99_us: p99, samples } = figures[name]!;
        expect(samples).toBe(name === 'flood_without_classes' ? 20 : 60);
        expect(p50).toBeGreaterThan(0);
        expect(p99).toBeGreaterThanOrEqual(p50!);
      }
    }
    expect(result['flood_with_classes']!['kv_bytes_per_s']).toBeGreaterThan(0);
  });
});
