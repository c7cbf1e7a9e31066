import { describe, expect, it } from 'vitest';
import { dualpath } from './support.js';

describe('dualpath rxe refuses, before anything starts,', () => {
  it.each([
    [['rxe'], /host 1 has no command/],
    [['rxe', '--hosts', '2', '--host1', 'true'], /host 2 has no command/],
    [['rxe', '--host2', 'true'], /--host2 without a second host/],
    [['rxe', '--hosts', '3', '--', 'true'], /Give 1 or 2/],
    [['rxe', '--on', 'cloud', '--', 'true'], /Allowed choices are auto, host, guests/],
    [['rxe', '--on', 'host', '--hosts', '2', '--', 'true'], /two hosts need guests/],
    [['rxe', '--time-limit', '0', '--', 'true'], /whole number from 1/],
  ])('%j', async (argv, message) => {
    const { code, stderr } = await dualpath(argv);
    expect(code).toBe(2);
    expect(stderr).toMatch(message);
  });
});
