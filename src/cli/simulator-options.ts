import { readFileSync } from 'node:fs';
import type { Command } from 'commander';
import { DualPathError } from '../errors/index.js';
import type * as Simulator from '../simulator/index.js';
import { positiveInteger, positiveNumber, sizeBytes } from './options.js';
import { loadWorkloadWithProgress, type WorkloadFlags } from './workload-options.js';
import type { CliContext } from './context.js';

export interface ClusterFlags {
  readonly hardware: string;
  readonly model: string;
  readonly buffer?: number;
}

export interface DataFlags {
  readonly think?: boolean;
  readonly sessions?: number;
  readonly maxContext?: number;
  readonly appendScale: number;
  readonly outputScale: number;
}

/** Options that describe nodes and model, for every command of the simulator. */
export function addClusterOptions(command: Command): void {
  command
    .option('--hardware <name>', 'hopper, a100, or a JSON file (docs/simulator.md)', 'hopper')
    .option(
      '--model <name>',
      'ds-v3.2-660b, ds-27b, qwen2.5-32b, gpt-oss-120b, qwen3-235b-a22b, ds-v3-660b',
      'ds-v3.2-660b',
    )
    .option('--buffer <size>', "host memory of a node for KV-Cache (default: the paper's)", sizeBytes);
}

export function addDataOptions(command: Command): void {
  command
    .option('--think', "keep a trace's pauses between turns")
    .option('--sessions <count>', 'of a trace: choose so many sessions (default: all)', positiveInteger)
    .option(
      '--max-context <tokens>',
      'of a trace: end a session before its first longer turn',
      positiveInteger,
    )
    .option('--append-scale <factor>', "factor on a data set's appended tokens", positiveNumber, 1)
    .option('--output-scale <factor>', "factor on a data set's generated tokens", positiveNumber, 1);
}

export function clusterOf(simulator: typeof Simulator, flags: ClusterFlags): Partial<Simulator.Deployment> {
  return {
    hardware: hardwareFor(simulator, flags.hardware),
    model: simulator.modelCostOf(flags.model),
    bufferBytesPerNode: flags.buffer,
  };
}

function hardwareFor(simulator: typeof Simulator, name: string): Simulator.Hardware {
  if (!name.endsWith('.json') && !name.includes('/')) return simulator.hardwareOf(name);
  let value: unknown;
  try {
    value = JSON.parse(readFileSync(name, 'utf8'));
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    throw new DualPathError('INVALID_ARGUMENT', `hardware ${name} cannot be read: ${why}`, { path: name });
  }
  return simulator.parseHardware(value, name);
}

/** A data set by name, or a trace. */
export async function workloadFor(
  simulator: typeof Simulator,
  name: string,
  flags: DataFlags,
  context: CliContext,
): Promise<Simulator.SimulatedWorkload> {
  if (simulator.isDataSet(name)) {
    return simulator.dataSetWorkload(name, { append: flags.appendScale, output: flags.outputScale });
  }
  const trace = await loadWorkloadWithProgress(name, sessionFlags(flags), context);
  return simulator.traceWorkload(trace, { blockTokens: 64, think: flags.think === true });
}

function sessionFlags({ sessions, maxContext }: DataFlags): WorkloadFlags {
  return {
    ...(sessions === undefined ? {} : { sessions }),
    ...(maxContext === undefined ? {} : { maxContext }),
  };
}
