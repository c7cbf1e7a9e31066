import { describe, expect, it } from 'vitest';
import { parseEtcdUrl } from '../../src/etcd/index.js';

describe('parseEtcdUrl', () => {
  it.each([
    ['etcd://10.0.0.1:2379', ['10.0.0.1:2379'], 'dualpath'],
    ['etcd://10.0.0.1/', ['10.0.0.1:2379'], 'dualpath'],
    ['etcd://a,b:1,c/main', ['a:2379', 'b:1', 'c:2379'], 'main'],
    ['etcd://[fd00::1]:2380,[fd00::2]/x', ['[fd00::1]:2380', '[fd00::2]:2379'], 'x'],
  ])('%s', (url, endpoints, name) => {
    expect(parseEtcdUrl(url)).toEqual({ endpoints, name });
  });

  it.each([
    '10.0.0.1:2379',
    'http://a',
    'etcd://',
    'etcd://a,,b',
    'etcd://a:70000',
    'etcd://a/b/c',
    'etcd://a b',
  ])("refuses '%s'", (url) => {
    expect(() => parseEtcdUrl(url)).toThrow(/give etcd:\/\/HOST:PORT/);
  });
});
