import { readFileSync } from 'node:fs';
import { z } from 'zod';
import { DualPathError } from '../errors/index.js';
import type { ReplicaConfig } from './options.js';

export const replicaSchema = z.strictObject({
  url: z.string(),
  name: z.string().optional(),
  ranks: z.number().optional(),
  engine: z.enum(['vllm', 'sglang']).optional(),
  weight: z.number().optional(),
  cache_tokens: z.number().optional(),
  kv_events: z
    .strictObject({ endpoint: z.string(), replay: z.string().optional(), topic: z.string().optional() })
    .optional(),
});

export function replicaOf({
  cache_tokens: cacheTokens,
  kv_events: kvEvents,
  ...rest
}: z.infer<typeof replicaSchema>): ReplicaConfig {
  return { ...rest, cacheTokens, kvEvents };
}

/** Reads a list of replicas: JSON, each a URL or an object. @throws INVALID_ARGUMENT */
export function readReplicasFile(path: string): ReplicaConfig[] {
  try {
    const value: unknown = JSON.parse(readFileSync(path, 'utf8'));
    return z
      .array(z.union([z.string().transform((url) => ({ url })), replicaSchema]))
      .parse(value)
      .map((each) => replicaOf(each));
  } catch (error) {
    const why = error instanceof z.ZodError ? z.prettifyError(error) : String(error);
    throw new DualPathError(
      'INVALID_ARGUMENT',
      `${path} must be a JSON list of replicas, ["http://host:8000", {"url": "...", "ranks": 4}]: ${why}`,
      { path },
    );
  }
}

/**
 * Reads the file every second, since editors and orchestrators replace files rather than write them, and tells of it at
 * first and whenever its text has changed. Returns how to stop.
 */
export function watchReplicasFile(
  path: string,
  onChange: (replicas: ReplicaConfig[]) => void,
  onError: (error: unknown) => void,
  intervalMs = 1000,
): () => void {
  let last: string | null = null;
  let lastError = '';
  const timer = setInterval(() => {
    try {
      const text = readFileSync(path, 'utf8');
      if (text === last) return;
      last = text;
      onChange(readReplicasFile(path));
      lastError = '';
    } catch (error) {
      if (String(error) !== lastError) onError(error);
      lastError = String(error);
    }
  }, intervalMs);
  return () => clearInterval(timer);
}
