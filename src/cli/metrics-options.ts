/** `--metrics` of commands that run for a while. */
import { InvalidArgumentError, type Command } from 'commander';
import { parseAddress, type Address } from '../control/index.js';
import type { DecodeEngine, PrefillEngine } from '../engine/index.js';
import type { Metrics, MetricsServer } from '../metrics/index.js';
import type { CliContext } from './support.js';

export interface MetricsFlags {
  metrics?: Address;
}

export function addMetricsOption(command: Command): Command {
  return command.option(
    '--metrics <address>',
    'serve Prometheus metrics there, host:port, or a port of this host alone; 0: any port',
    metricsAddressOf,
  );
}

function metricsAddressOf(text: string): Address {
  try {
    return parseAddress(/^\d+$/.test(text) ? `127.0.0.1:${text}` : text, 0);
  } catch (error) {
    throw new InvalidArgumentError((error as Error).message);
  }
}

export interface OpenMetrics {
  readonly metrics: Metrics;
  close(): Promise<void>;
}

/** Undefined where nobody asks. @throws INVALID_ARGUMENT when the address cannot be had */
export async function openMetrics(
  { metrics: address }: MetricsFlags,
  context: CliContext,
): Promise<OpenMetrics | undefined> {
  if (address === undefined) return undefined;
  const { Metrics, MetricsServer } = await import('../metrics/index.js');
  const metrics = new Metrics();
  const server: MetricsServer = await MetricsServer.open(metrics, address);
  context.note(`metrics at ${server.url}`);
  return { metrics, close: () => server.close() };
}

/** The engines of this process that run now, and their store. */
export async function watchEngines(
  { metrics }: OpenMetrics,
  engines: () => readonly (PrefillEngine | DecodeEngine)[],
): Promise<void> {
  const { addEngineMetrics, addStoreMetrics } = await import('../metrics/index.js');
  addEngineMetrics(metrics, engines);
  addStoreMetrics(metrics, () => engines()[0]?.traffic.store);
}
