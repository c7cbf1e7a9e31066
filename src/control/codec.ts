/**
 * Plain data to bytes and back: JSON, with typed arrays beside it as they are and bigints as decimal strings. Layout:
 * length of the JSON (u32, little endian), the JSON, zeroes up to a multiple of 4, the arrays. Where an array stands in
 * the data the JSON has {"$u32": [first byte, bytes]} or {"$u8": ...}.
 */
import { endianness } from 'node:os';
import { DualPathError } from '../errors/index.js';

if (endianness() !== 'LE') throw new DualPathError('INTERNAL', 'control messages are little endian');

export function encodeMessage(value: unknown): Buffer {
  const arrays: Uint8Array[] = [];
  let arrayBytes = 0;
  const attach = (array: Uint8Array): [number, number] => {
    const place: [number, number] = [arrayBytes, array.length];
    arrays.push(array);
    const padding = -array.length & 3;
    if (padding > 0) arrays.push(new Uint8Array(padding));
    arrayBytes += array.length + padding;
    return place;
  };
  const text = JSON.stringify(value, (_key, item: unknown) => {
    if (typeof item === 'bigint') return { $big: item.toString() };
    if (item instanceof Uint32Array) {
      return { $u32: attach(new Uint8Array(item.buffer, item.byteOffset, item.byteLength)) };
    }
    if (item instanceof Uint8Array) return { $u8: attach(item) };
    return item;
  });
  const json = Buffer.from(text, 'utf8');
  const head = Buffer.allocUnsafe(4);
  head.writeUInt32LE(json.length, 0);
  return Buffer.concat([head, json, Buffer.alloc(-json.length & 3), ...arrays]);
}

/** @throws INVALID_ARGUMENT when the bytes are no message */
export function decodeMessage(bytes: Buffer): unknown {
  try {
    if (bytes.length < 4) throw new RangeError('it has no header');
    const jsonBytes = bytes.readUInt32LE(0);
    const arraysAt = 4 + jsonBytes + (-jsonBytes & 3);
    if (arraysAt > bytes.length) throw new RangeError('its JSON is longer than it');
    return JSON.parse(bytes.toString('utf8', 4, 4 + jsonBytes), (_key, item: unknown) =>
      reviveItem(item, bytes, arraysAt),
    );
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    throw new DualPathError('INVALID_ARGUMENT', `a malformed control message: ${why}`, {}, { cause: error });
  }
}

function reviveItem(item: unknown, bytes: Buffer, arraysAt: number): unknown {
  if (typeof item !== 'object' || item === null || Array.isArray(item)) return item;
  if ('$big' in item) {
    if (typeof item.$big !== 'string' || !/^-?\d{1,40}$/.test(item.$big)) throw new TypeError('a bad bigint');
    return BigInt(item.$big);
  }
  const words = '$u32' in item;
  const place: unknown = words ? item.$u32 : '$u8' in item ? item.$u8 : undefined;
  if (place === undefined) return item;
  const [first, length] = placeOf(place, bytes.length - arraysAt, words ? 4 : 1);
  // A copy: the frame may be a piece of a larger buffer, at any alignment, that would be kept alive.
  const copy = new Uint8Array(length);
  copy.set(bytes.subarray(arraysAt + first, arraysAt + first + length));
  return words ? new Uint32Array(copy.buffer) : copy;
}

function placeOf(place: unknown, within: number, itemBytes: number): [number, number] {
  if (Array.isArray(place) && place.length === 2) {
    const [first, length] = place as unknown[];
    const whole = (n: unknown): n is number => Number.isSafeInteger(n) && (n as number) >= 0;
    if (whole(first) && whole(length) && first + length <= within && length % itemBytes === 0) {
      return [first, length];
    }
  }
  throw new RangeError('an array lies outside of it');
}
