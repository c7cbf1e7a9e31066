import { describe, expect, it } from 'vitest';
import {
  addressFields,
  agreePath,
  defaultTrafficClasses,
  rdmaProtocolVersion,
  trafficClasses,
  type PathHello,
} from '../../src/rdma/index.js';

const hello: PathHello = {
  version: rdmaProtocolVersion,
  identity: 'model-a',
  trafficClass: 'kv',
  linkLayer: 'ethernet',
  mtuBytes: 4096,
  lid: 0,
  gid: '0000:0000:0000:0000:0000:ffff:0a4d:0001',
  qpNum: 17,
  psn: 5,
  receives: 63,
  creditAddress: 0x7f00_0000_0000n,
  creditKey: 3,
};

describe('trafficClasses', () => {
  it('fills in the defaults', () => {
    expect(trafficClasses()).toEqual(defaultTrafficClasses);
    expect(trafficClasses({ kv: { dscp: 8 } }).kv).toEqual({
      ...{ serviceLevel: 2, virtualLane: 2, dscp: 8 },
    });
  });

  it.each([
    [{ kv: { dscp: 64 } }, /traffic class kv: DSCP 64; whole numbers from 0 to 63 are allowed/],
    [{ control: { serviceLevel: 16 } }, /traffic class control: service level \(SL\) 16; .* 0 to 15/],
    [{ inference: { dscp: 1.5 } }, /DSCP 1.5/],
    [{ inferrence: {} }, /there is no traffic class 'inferrence' \(did you mean inference\?\)/],
    [{ kv: { dscp: 26 } }, /inference \(SL 1, DSCP 26\) and kv \(SL 2, DSCP 26\) must differ/],
    [{ kv: { serviceLevel: 1 } }, /must differ in both/],
  ])('refuses %j', (given, message) => {
    expect(() => trafficClasses(given)).toThrow(message);
  });

  it('is the SL on InfiniBand and DSCP << 2 on RoCE', () => {
    const kv = { serviceLevel: 4, virtualLane: 4, dscp: 26 };
    expect(addressFields(kv, 'infiniband')).toEqual({ serviceLevel: 4, trafficClass: 0 });
    expect(addressFields(kv, 'ethernet')).toEqual({ serviceLevel: 0, trafficClass: 104 });
  });
});

describe('agreePath', () => {
  it('comes to the smaller MTU on both sides', () => {
    const peer = { ...hello, mtuBytes: 1024 };
    expect(agreePath(hello, peer, defaultTrafficClasses)).toEqual({
      peer,
      mtuBytes: 1024,
      serviceLevel: 0,
      trafficClass: 40,
      timeout: 17,
      retryCount: 6,
      rnrRetry: 6,
    });
    expect(agreePath(peer, hello, defaultTrafficClasses).mtuBytes).toBe(1024);
  });

  it.each<[Partial<PathHello>, RegExp]>([
    [{ version: 2 }, /the peer's protocol version is '2', this side's '1'; run the same version/],
    [{ identity: 'model-b' }, /the peer's model and layout is 'model-b', this side's 'model-a'/],
    [{ linkLayer: 'infiniband' }, /link layer is 'infiniband', this side's 'ethernet'/],
    [{ trafficClass: 'control' }, /traffic class is 'control'/],
    [{ mtuBytes: 1500 }, /path MTU 1500 of the peer: 256, 512, 1024, 2048, 4096 are allowed/],
  ])('refuses a peer with %j', (different, message) => {
    expect(() => agreePath(hello, { ...hello, ...different }, defaultTrafficClasses)).toThrow(message);
  });
});
