/** Reads a GGUF file (version 2 or 3): its metadata, and tensors as Float32Array, dequantised one at a time. */
import { closeSync, openSync, readSync } from 'node:fs';

/** Values and bytes of a quantisation block of each tensor type, and how a block becomes floats (ggml-quants). */
const tensorTypes = {
  0: { name: 'F32', values: 1, bytes: 4, read: (view, at, out, to) => (out[to] = view.getFloat32(at, true)) },
  1: { name: 'F16', values: 1, bytes: 2, read: (view, at, out, to) => (out[to] = half(view, at)) },
  3: { name: 'Q4_1', values: 32, bytes: 20, read: readQ4 },
  8: { name: 'Q8_0', values: 32, bytes: 34, read: readQ8 },
};

/** 32 values: a scale, a minimum, then a nibble each, the low ones first. */
function readQ4(view, at, out, to) {
  const scale = half(view, at);
  const least = half(view, at + 2);
  for (let i = 0; i < 16; i++) {
    const byte = view.getUint8(at + 4 + i);
    out[to + i] = (byte & 15) * scale + least;
    out[to + i + 16] = (byte >> 4) * scale + least;
  }
}

/** 32 values: a scale, then a signed byte each. */
function readQ8(view, at, out, to) {
  const scale = half(view, at);
  for (let i = 0; i < 32; i++) out[to + i] = view.getInt8(at + 2 + i) * scale;
}

function half(view, at) {
  const bits = view.getUint16(at, true);
  const exponent = (bits >> 10) & 31;
  const fraction = bits & 1023;
  const sign = bits >> 15 === 0 ? 1 : -1;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  if (exponent === 31) return fraction === 0 ? sign * Infinity : NaN;
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}

/** The file's head, read piece by piece. */
class Reader {
  #fd;
  #chunk = Buffer.alloc(0);
  #chunkAt = 0;
  at = 0;

  constructor(fd) {
    this.#fd = fd;
  }

  bytes(count) {
    const from = this.at - this.#chunkAt;
    if (from + count > this.#chunk.length) {
      const wanted = Math.max(count, 1 << 20);
      const chunk = Buffer.alloc(wanted);
      this.#chunk = chunk.subarray(0, readSync(this.#fd, chunk, 0, wanted, this.at));
      this.#chunkAt = this.at;
      if (this.#chunk.length < count) throw new Error(`the GGUF file ends within its head, at ${this.at}`);
      return this.bytes(count);
    }
    this.at += count;
    return this.#chunk.subarray(from, from + count);
  }

  u32 = () => this.bytes(4).readUInt32LE();
  u64 = () => Number(this.bytes(8).readBigUInt64LE());
  text = () => this.bytes(this.u64()).toString('utf8');
}

const scalars = [
  (r) => r.bytes(1).readUInt8(),
  (r) => r.bytes(1).readInt8(),
  (r) => r.bytes(2).readUInt16LE(),
  (r) => r.bytes(2).readInt16LE(),
  (r) => r.u32(),
  (r) => r.bytes(4).readInt32LE(),
  (r) => r.bytes(4).readFloatLE(),
  (r) => r.bytes(1).readUInt8() !== 0,
  (r) => r.text(),
  (r) => {
    const type = r.u32();
    return Array.from({ length: r.u64() }, () => value(r, type));
  },
  (r) => r.u64(),
  (r) => Number(r.bytes(8).readBigInt64LE()),
  (r) => r.bytes(8).readDoubleLE(),
];

function value(reader, type) {
  if (type >= scalars.length) throw new Error(`GGUF value type ${type} at ${reader.at} is not known`);
  return scalars[type](reader);
}

/** @returns metadata by key, and `tensor(name)`: its dimensions (fastest first) and its values */
export function openGguf(path) {
  const fd = openSync(path, 'r');
  const reader = new Reader(fd);
  if (reader.bytes(4).toString('latin1') !== 'GGUF') throw new Error(`${path} is no GGUF file`);
  const version = reader.u32();
  if (version < 2 || version > 3) throw new Error(`${path}: GGUF version ${version}; 2 and 3 are read`);
  const tensors = new Map();
  const metadata = {};
  const tensorCount = reader.u64();
  const keyCount = reader.u64();
  for (let i = 0; i < keyCount; i++) {
    const key = reader.text();
    metadata[key] = value(reader, reader.u32());
  }
  const metadataEnd = reader.at;
  for (let i = 0; i < tensorCount; i++) {
    const name = reader.text();
    const dims = Array.from({ length: reader.u32() }, () => reader.u64());
    tensors.set(name, { dims, type: reader.u32(), offset: reader.u64() });
  }
  const alignment = metadata['general.alignment'] ?? 32;
  const dataAt = Math.ceil(reader.at / alignment) * alignment;
  return {
    metadata,
    /** Where the file's metadata ends and the list of tensors begins. */
    metadataEnd,
    names: [...tensors.keys()],
    has: (name) => tensors.has(name),
    tensor: (name) => readTensor(fd, dataAt, name, tensors.get(name)),
    close: () => closeSync(fd),
  };
}

function readTensor(fd, dataAt, name, tensor) {
  if (tensor === undefined)
    throw new Error(`the model has no tensor ${name}: is it of the Llama architecture?`);
  const type = tensorTypes[tensor.type];
  if (type === undefined) {
    const known = Object.values(tensorTypes).map((one) => one.name);
    throw new Error(`tensor ${name} has GGML type ${tensor.type}; ${known.join(', ')} are read`);
  }
  const { dims } = tensor;
  const values = dims.reduce((product, dim) => product * dim, 1);
  const blocks = values / type.values;
  const bytes = Buffer.alloc(blocks * type.bytes);
  const read = readSync(fd, bytes, 0, bytes.length, dataAt + tensor.offset);
  if (read < bytes.length) throw new Error(`tensor ${name} ends early: ${read} of ${bytes.length} bytes`);
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  const data = new Float32Array(values);
  for (let block = 0; block < blocks; block++) type.read(view, block * type.bytes, data, block * type.values);
  return { dims, data };
}
