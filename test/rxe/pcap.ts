/** RoCE v2 packets of a capture (classic pcap, Ethernet, IPv4, UDP port 4791; IBTA annex A17, BTH of 9.2). */
export interface RocePacket {
  readonly source: string;
  readonly destination: string;
  readonly dscp: number;
  readonly opcode: number;
  readonly destinationQp: number;
  readonly psn: number;
}

const pcapMagic = 0xa1b2c3d4;
const ethernet = 1;
const rocePort = 4791;

export function rocePackets(capture: Buffer): RocePacket[] {
  if (capture.readUInt32LE(0) !== pcapMagic || capture.readUInt32LE(20) !== ethernet) {
    throw new Error('no little-endian pcap of Ethernet frames');
  }
  const packets: RocePacket[] = [];
  for (let at = 24; at + 16 <= capture.length;) {
    const length = capture.readUInt32LE(at + 8);
    const packet = rocePacket(capture.subarray(at + 16, at + 16 + length));
    if (packet !== undefined) packets.push(packet);
    at += 16 + length;
  }
  return packets;
}

function rocePacket(frame: Buffer): RocePacket | undefined {
  if (frame.length < 14 + 20 + 8 + 12 || frame.readUInt16BE(12) !== 0x0800) return undefined;
  const ip = frame.subarray(14);
  const headerBytes = (ip[0]! & 0xf) * 4;
  const udp = ip.subarray(headerBytes);
  if (ip[9] !== 17 || udp.readUInt16BE(2) !== rocePort) return undefined;
  const bth = udp.subarray(8);
  const address = (offset: number): string => [...ip.subarray(offset, offset + 4)].join('.');
  return {
    source: address(12),
    destination: address(16),
    dscp: ip[1]! >> 2,
    opcode: bth[0]!,
    destinationQp: bth.readUIntBE(5, 3),
    psn: bth.readUIntBE(9, 3),
  };
}
