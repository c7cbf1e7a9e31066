/**
 * What an engine process and whoever drives it (a replay) say to each other. The driver has the scheduler, the prompts and
 * the store's name; an engine has its memory, its GPU and the way to the other engines.
 */
import { z } from 'zod';
import { errorCodes, type ErrorCode } from '../errors/index.js';

const name = z.string().min(1).max(128);
const request = z.string().min(1).max(1024);
const count = z.int().min(0);
const positive = z.number().positive();
const rate = z.number().min(0);
const code = z.enum(Object.keys(errorCodes) as [ErrorCode, ...ErrorCode[]]);
const address = z.object({ host: z.string().min(1).max(256), port: z.int().min(1).max(65_535) });

export const describeSchema = z.object({
  name,
  role: z.enum(['prefill', 'decode']),
  device: z.string().nullable(),
  transport: z.enum(['loopback', 'shared-memory', 'verbs']),
  memoryLimitBytes: count,
});
export type EngineDescription = z.infer<typeof describeSchema>;

/** Everything a run of an engine needs that the engine process was not started with. */
export const jobSchema = z.object({
  /** The request scheduler that the engine joins; null: its driver is one. */
  scheduler: z.object({ endpoint: z.string().min(1).max(300), model: name }).nullable(),
  /** A folder in the engine's store folder; the driver makes and removes it. */
  store: z.string().regex(/^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$/),
  bufferBytes: z.int().min(1),
  hbmBytes: z.int().min(1),
  windowLayers: z.int().min(1),
  layerwise: z.boolean(),
  freeHits: z.boolean(),
  quotaS: positive,
  decodeStepS: rate,
  lanes: z.int().min(1).max(4096),
  timeModel: z.object({
    baseS: rate,
    perNewTokenS: rate,
    perAttentionTokenS: rate,
    perAttentionPairS: rate,
  }),
  /** Emulated rates; 0: only the host's own storage and network set the pace. */
  snicBytesPerS: rate,
  cnicBytesPerS: rate,
  /** Memory that nobody holds is filled and looked at, so that a write into it is seen. */
  canaries: z.boolean(),
  /** The engines of the other role: this one dials those that come after it by name. None where a scheduler tells of them. */
  peers: z.array(z.object({ name, address })).max(1024),
});
export type EngineJob = z.infer<typeof jobSchema>;

export const openedSchema = z.object({ bufferBlocks: count, hbmBlocks: count });

const gpu = z.object({
  kernels: count,
  checkedBytes: count,
  mismatchedBytes: count,
  overruns: count,
  latenessMeanUs: z.number(),
  latenessMaxUs: z.number(),
});

export const totalsSchema = z.object({
  storageReadBytes: count,
  storageWriteBytes: count,
  storageReadBusyS: z.number(),
  gpu,
  lostBlocks: count,
  failedPrograms: count,
  directIo: z.boolean(),
  storageIo: z.enum(['io_uring', 'thread_pool']),
  cpuS: z.number(),
  transport: z.object({
    transport: z.enum(['loopback', 'shared-memory', 'verbs']),
    device: z.string().nullable(),
    trafficClass: z.string().nullable(),
    emulated: z.boolean(),
    sentBytes: count,
    sentBytesTo: z.array(z.object({ peer: name, bytes: count })),
    connections: count,
    rebuilt: count,
    longestOutageMs: z.number(),
  }),
  copies: z.object({
    device: z.string().nullable(),
    reason: z.string(),
    emulated: z.boolean(),
    bytes: z.object({ nic: count, memcpy: count, cuda: count }),
    refusedSteps: count,
  }),
  canaries: z.object({ checkedBytes: count, mismatchedBytes: count }),
});
export type EngineTotals = z.infer<typeof totalsSchema>;

/** Calls of an engine to its driver. */
const load = z.object({
  engine: name,
  sequence: count,
  unfinishedRequests: count,
  unfinishedTokens: count,
  nodeReadQueueBlocks: count,
  lastAdmission: count.exactOptional(),
});
export const fetchSchema = z.object({ group: name, loads: z.array(load).max(64) });
export const assignmentsSchema = z.array(
  z.object({
    request,
    epoch: count,
    admission: count,
    prefillEngine: name,
    decodeEngine: name,
    side: z.enum(['prefill', 'decode', 'split']),
    prefillReadBlocks: count,
    decodeReadBlocks: count,
    promptBlocks: count,
    prefillHbmBlocks: count,
    decodeHbmBlocks: count,
  }),
);
export const promptSchema = z.object({ request });
export const promptTokensSchema = z.object({
  prompt: z.instanceof(Uint32Array),
  /** What the request generates: the emulated engine makes it up no more than the prompt. */
  reply: z.instanceof(Uint32Array),
});

/** Events, engine to driver. */
export const completeSchema = z.object({
  request,
  stage: z.enum(['prefill-read', 'decode-read', 'prefill', 'decode-buffer', 'request']),
  admission: count.nullable(),
});
export const failSchema = z.object({
  request,
  code,
  message: z.string().max(65_536),
  admission: count.nullable(),
});
export const prefilledSchema = z.object({ request });
export const endedSchema = z.object({
  request,
  persistError: z.object({ code, message: z.string() }).nullable(),
});
export const deviceFailedSchema = z.object({ code, message: z.string().max(65_536) });

/** Events, driver to engine. */
export const cancelSchema = z.object({ request, admission: count, code, message: z.string().max(65_536) });
