import { InvalidArgumentError } from 'commander';
import { describe, expect, it } from 'vitest';
import {
  listOf,
  nonNegativeInteger,
  positiveInteger,
  positiveNumber,
  rateBytesPerSecond,
  sizeBytes,
} from '../../src/cli/support.js';

const accepted: [(text: string) => unknown, string, unknown][] = [
  [positiveInteger, '1', 1],
  [positiveInteger, '9007199254740991', Number.MAX_SAFE_INTEGER],
  [nonNegativeInteger, '0', 0],
  [positiveNumber, '0.25', 0.25],
  [positiveNumber, '.5', 0.5],
  [positiveNumber, '1e-3', 0.001],
  [sizeBytes, '4096', 4096],
  [sizeBytes, '64MiB', 64 * 2 ** 20],
  [sizeBytes, '1.5 GB', 1.5e9],
  [sizeBytes, '1B', 1],
  [rateBytesPerSecond, '64MB/s', 64e6],
  [rateBytesPerSecond, '1Gb/s', 125e6],
  [rateBytesPerSecond, '0.5GiB/s', 2 ** 29],
  [rateBytesPerSecond, '8b/s', 1],
  [listOf(positiveInteger), '1,2, 4', [1, 2, 4]],
];

const refused: [(text: string) => unknown, string[], RegExp][] = [
  [
    positiveInteger,
    ['0', '-1', '1.5', '1e3', '', ' 1', '9007199254740992', 'Infinity'],
    /whole number from 1/,
  ],
  [nonNegativeInteger, ['-1', 'x', '0x10'], /whole number from 0/],
  [positiveNumber, ['0', '-1', 'NaN', 'Infinity', '1e999', '', '.'], /above 0/],
  [
    sizeBytes,
    ['0', '64mib', '64Mb', '0.5B', '1XB', 'MiB', '-1MiB', '9000000TiB', '1 2'],
    /such as 64MiB; units: B, KB/,
  ],
  [rateBytesPerSecond, ['64', '64MB', '0Gb/s', '1Gbps', '1gb/s', '/s', '1constructor/s'], /such as 64MB\/s/],
  [listOf(positiveInteger), ['', '1,,2', '1,', '1,0', Array(257).fill('1').join()], /items|whole number/],
];

describe('option parsers', () => {
  it.each(accepted)('%o reads %j', (parse, text, value) => expect(parse(text)).toEqual(value));

  it.each(refused)('%o refuses what it must, saying what it takes', (parse, texts, message) => {
    for (const text of texts) {
      const read = (): unknown => parse(text);
      expect(read, text).toThrow(InvalidArgumentError);
      expect(read, text).toThrow(message);
    }
  });
});
