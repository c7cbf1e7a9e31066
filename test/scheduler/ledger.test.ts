import { describe, expect, it } from 'vitest';
import { Ledger } from '../../src/scheduler/ledger.js';
import { engineOf, expectError } from './support.js';

describe('Ledger', () => {
  it('refuses contradictory engines', () => {
    const refused = (pattern: RegExp, ...engines: ReturnType<typeof engineOf>[]): void =>
      expectError(() => new Ledger([engineOf('prefill', 'p'), ...engines]), 'INVALID_ARGUMENT', pattern);
    refused(/name is taken/, engineOf('decode', 'p'));
    refused(/engines of the other role/, engineOf('decode', 'd', { group: 'prefill-group' }));
    refused(/same rate/, engineOf('decode', 'd', { node: 'node-p', readRateBytesPerS: 7 }));
    refused(/readRateBytesPerS of engine d is 0/, engineOf('decode', 'd', { readRateBytesPerS: 0 }));
    refused(/bufferBlocks of engine d is 1.5/, engineOf('decode', 'd', { bufferBlocks: 1.5 }));
    refused(/role is both/, engineOf('decode', 'd', { role: 'both' as 'decode' }));
    refused(/no decode engine/);
  });

  it('never lets an account leave its bounds, and changes nothing when it would', () => {
    const ledger = new Ledger([engineOf('prefill', 'p'), engineOf('decode', 'd')]);
    const d = ledger.engine('d');
    ledger.take(d, { bufferBlocks: 10, hbmBlocks: 20 });
    expectError(() => ledger.take(d, { bufferBlocks: 1 }), 'INTERNAL', /engine d/);
    expectError(() => ledger.take(d, { hbmBlocks: 1 }), 'INTERNAL');
    expectError(() => ledger.give(d, { bufferBlocks: 5, readBlocks: 1 }), 'INTERNAL');
    expectError(() => ledger.give(d, { requests: 1 }), 'INTERNAL');
    expect(ledger.engine('d')).toMatchObject({ bufferBlocks: 10, hbmBlocks: 20, unfinishedRequests: 0 });
  });

  it('keeps a lost engine on the account, but not among the live', () => {
    const ledger = new Ledger([engineOf('prefill', 'p'), engineOf('decode', 'd')]);
    const d = ledger.engine('d');
    ledger.take(d, { bufferBlocks: 3 });
    ledger.lose(d);
    expect(ledger.live('decode')).toEqual([]);
    ledger.give(d, { bufferBlocks: 3 });
    expect(ledger.engine('d')).toMatchObject({ lost: true, bufferBlocks: 0 });
  });
});
