/** The arbiter of an InfiniBand port, transcribed: what native/core/vl_arbiter.cc does, packet by packet. */
import type { Arbitration, LaneWeight } from '../../src/rdma/index.js';

/** Packets of 4 KiB from lanes that are always busy, one by one, as 7.6.9 of the specification has it. */
export function simulate(
  { high, low, highLimit }: Arbitration,
  busy: readonly number[],
  packets: number,
): number[] {
  const sent = new Array<number>(15).fill(0);
  const cursor = (table: readonly LaneWeight[]): { at: number; left: number } => ({
    at: 0,
    left: table[0]?.weight ?? 0,
  });
  const [ofHigh, ofLow] = [cursor(high), cursor(low)];
  const ready = (table: readonly LaneWeight[]): boolean =>
    table.some(({ lane, weight }) => weight > 0 && busy.includes(lane));
  const take = (table: readonly LaneWeight[], place: { at: number; left: number }): void => {
    while (place.left <= 0 || !busy.includes(table[place.at]!.lane)) {
      place.at = (place.at + 1) % table.length;
      place.left = table[place.at]!.weight;
    }
    place.left -= 64;
    sent[table[place.at]!.lane]! += 1;
  };
  let since = 0;
  for (let i = 0; i < packets; i++) {
    const expired = highLimit !== 255 && since >= Math.max(1, highLimit);
    if (ready(high) && !(expired && ready(low))) {
      if (expired) since = 0;
      take(high, ofHigh);
      since++;
    } else if (ready(low)) {
      take(low, ofLow);
      since = 0;
    }
  }
  return sent.map((count) => count / packets);
}
