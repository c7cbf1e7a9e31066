import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { Connection, ConnectionTable, type ConnectionAction } from '../../src/rdma/index.js';

const connect = (candidate = 0): ConnectionAction => ({ do: 'connect', candidate });

describe('Connection', () => {
  it('connects on first use, and closes when idle', () => {
    const connection = new Connection({ idleMs: 100 });
    expect(connection.use(0)).toEqual(connect());
    expect(connection.use(1)).toBeNull();
    connection.connected(5);
    expect([connection.state, connection.dueMs]).toEqual(['ready', 105]);
    connection.use(50);
    expect(connection.tick(149)).toBeNull();
    expect(connection.tick(150)).toEqual({ do: 'drain' });
    connection.drained(151);
    expect(connection.state).toBe('idle');
    expect(connection.use(152)).toEqual(connect());
  });

  it('rebuilds after a remote error, later each time, and begins anew once it was stable', () => {
    const connection = new Connection({ firstBackOffMs: 10, longestBackOffMs: 35, stableMs: 100 });
    connection.use(0);
    connection.connected(0);
    connection.broke(1, 'remote');
    expect([connection.state, connection.tick(1000)]).toEqual(['draining', null]);
    connection.drained(2);
    const waits: number[] = [];
    let nowMs = 2;
    for (let i = 0; i < 4; i++) {
      waits.push(connection.dueMs - nowMs);
      nowMs = connection.dueMs;
      expect(connection.tick(nowMs - 1)).toBeNull();
      expect(connection.tick(nowMs)).toEqual(connect());
      connection.connectFailed(nowMs, 'remote');
    }
    expect(waits).toEqual([10, 20, 35, 35]);
    nowMs = connection.dueMs;
    connection.tick(nowMs);
    connection.connected(nowMs);
    connection.broke(nowMs + 100, 'remote');
    connection.drained(nowMs + 100);
    expect(connection.dueMs - (nowMs + 100)).toBe(10);
  });

  it('fails for good after a local error: an attempt would only repeat it', () => {
    const connection = new Connection();
    connection.use(0);
    connection.connected(0);
    connection.broke(1, 'local');
    connection.drained(2);
    expect([connection.state, connection.cause]).toEqual(['failed', 'local']);
    expect(connection.use(1e9)).toBeNull();
    expect(connection.tick(1e9)).toBeNull();
  });

  it('tries the next GID while none has worked, and keeps the one that has', () => {
    const connection = new Connection({ firstBackOffMs: 1 });
    expect(connection.use(0)).toEqual(connect(0));
    connection.connectFailed(0, 'remote');
    expect(connection.tick(1)).toEqual(connect(1));
    connection.connected(1);
    connection.broke(2, 'remote');
    connection.drained(2);
    expect(connection.tick(100)).toEqual(connect(1));
    connection.connectFailed(100, 'remote');
    expect(connection.tick(1000)).toEqual(connect(1));
  });

  it('gives up after so many attempts, and begins anew when it is used', () => {
    const connection = new Connection({ maxAttempts: 3, firstBackOffMs: 1 });
    connection.use(0);
    for (let i = 0; i < 3; i++) {
      connection.connectFailed(i * 1000, 'remote');
      connection.tick((i + 1) * 1000);
    }
    expect([connection.state, connection.cause]).toEqual(['failed', 'remote']);
    expect(connection.use(9000)).toMatchObject({ do: 'connect' });
  });

  it('need not wait when the path returns, and yet goes on waiting when that came too early', () => {
    const connection = new Connection({ firstBackOffMs: 500 });
    connection.use(0);
    connection.connectFailed(0, 'remote');
    connection.pathReturned(3);
    expect(connection.tick(3)).toMatchObject({ do: 'connect' });
    connection.connectFailed(4, 'remote');
    expect(connection.dueMs).toBe(1004);
  });

  it('never connects while a queue pair drains, nor after a local error, nor sooner than the back-off', () => {
    const event = fc.constantFrom(
      'use',
      'connected',
      'failRemote',
      'failLocal',
      'remote',
      'local',
      'drained',
      'close',
      'tick',
    );
    fc.assert(
      fc.property(fc.array(fc.tuple(event, fc.nat(200)), { maxLength: 120 }), (events) => {
        const connection = new Connection({ idleMs: 150, maxAttempts: 5, firstBackOffMs: 10 });
        let [nowMs, queuePair, endedMs, cause] = [0, false, -Infinity, 'none'];
        const act = (action: ConnectionAction | null, byUse: boolean): void => {
          if (action?.do === 'drain') expect(queuePair).toBe(true);
          if (action?.do !== 'connect') return;
          expect(queuePair).toBe(false);
          expect(cause).not.toBe('local');
          if (!byUse) expect(nowMs - endedMs).toBeGreaterThanOrEqual(10);
          queuePair = true;
        };
        for (const [what, later] of events) {
          nowMs += later;
          const before = connection.state;
          if (what === 'use') act(connection.use(nowMs), true);
          if (what === 'tick') act(connection.tick(nowMs), false);
          if (what === 'close') act(connection.close(), false);
          if (what === 'connected') connection.connected(nowMs);
          if (what === 'failRemote' || what === 'failLocal') {
            connection.connectFailed(nowMs, what === 'failLocal' ? 'local' : 'remote');
            if (before === 'connecting')
              [queuePair, endedMs, cause] = [false, nowMs, what === 'failLocal' ? 'local' : 'remote'];
          }
          if (what === 'remote' || what === 'local') {
            connection.broke(nowMs, what);
            if (before === 'ready') cause = what;
          }
          if (what === 'drained' && before === 'draining') {
            connection.drained(nowMs);
            [queuePair, endedMs] = [false, nowMs];
            // Closed in the meantime: whoever uses it again wants another try.
            if (connection.state === 'idle') cause = 'none';
          }
          expect(['connecting', 'ready', 'draining'].includes(connection.state)).toBe(queuePair);
        }
      }),
      { numRuns: 500 },
    );
  });
});

describe('ConnectionTable', () => {
  it('has one connection for each peer and class', () => {
    const table = new ConnectionTable();
    expect(table.use('p', 'kv', 0)).toEqual([{ peer: 'p', trafficClass: 'kv', action: connect() }]);
    expect(table.use('p', 'inference', 0)).toHaveLength(1);
    expect(table.use('p', 'kv', 1)).toEqual([]);
    expect([table.open, table.get('p', 'kv')?.state]).toEqual([2, 'connecting']);
    expect(table.get('q', 'kv')).toBeUndefined();
  });

  it('closes the one unused for longest when all are taken', () => {
    const table = new ConnectionTable({ maxConnections: 2 });
    for (const [at, peer] of ['p', 'q'].entries()) {
      table.use(peer, 'kv', at);
      table.get(peer, 'kv')?.connected(at);
    }
    expect(table.use('r', 'kv', 5)).toEqual([{ peer: 'p', trafficClass: 'kv', action: { do: 'drain' } }]);
    expect(() => table.use('r', 'kv', 6)).toThrow(
      /2 connections are open, the most there can be, and one is being closed/,
    );
    table.get('p', 'kv')?.drained(7);
    expect(table.use('r', 'kv', 7)).toMatchObject([{ peer: 'r', action: { do: 'connect' } }]);
    expect(table.open).toBe(2);
    table.get('q', 'kv')?.use(9);
    expect(() => table.use('s', 'kv', 9)).toThrow(/all are in use/);
  });

  it('forgets those that are idle, and says when time alone makes work', () => {
    const table = new ConnectionTable({ idleMs: 100 });
    expect(table.dueMs).toBe(Infinity);
    table.use('p', 'kv', 0);
    table.get('p', 'kv')?.connected(0);
    expect(table.dueMs).toBe(100);
    expect(table.tick(100)).toEqual([{ peer: 'p', trafficClass: 'kv', action: { do: 'drain' } }]);
    table.get('p', 'kv')?.drained(101);
    expect(table.tick(101)).toEqual([]);
    expect(table.get('p', 'kv')).toBeUndefined();
  });
});
