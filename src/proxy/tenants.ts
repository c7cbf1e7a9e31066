import { hash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import type { IncomingHttpHeaders } from 'node:http';
import { z } from 'zod';
import { DualPathError } from '../errors/index.js';
import { ApiError } from '../openai/index.js';

const schema = z.record(z.string().min(1).max(256), z.array(z.string().regex(/^[0-9a-f]{64}$/)).min(1));

/**
 * Reads tenants: `{"name": ["SHA-256 of a bearer token, hex", ...]}`. Tokens themselves are in no file of the router's.
 * @throws INVALID_ARGUMENT
 */
export function readTenants(path: string): Map<string, string> {
  let value: unknown;
  try {
    value = JSON.parse(readFileSync(path, 'utf8'));
  } catch (error) {
    throw new DualPathError('INVALID_ARGUMENT', `the tenants file ${path} cannot be read: ${String(error)}`, {
      path,
    });
  }
  const parsed = schema.safeParse(value);
  if (!parsed.success) {
    throw new DualPathError(
      'INVALID_ARGUMENT',
      `the tenants file ${path} must be {"tenant": ["SHA-256 of its token in hex, 64 digits", ...]}: ` +
        z.prettifyError(parsed.error),
      { path },
    );
  }
  const tenants = new Map<string, string>();
  for (const [tenant, digests] of Object.entries(parsed.data)) {
    for (const digest of digests) {
      if (tenants.has(digest) && tenants.get(digest) !== tenant) {
        throw new DualPathError(
          'INVALID_ARGUMENT',
          `${path}: ${tenant} and ${tenants.get(digest)} have the same token: give each tenant its own`,
          { path },
        );
      }
      tenants.set(digest, tenant);
    }
  }
  return tenants;
}

/** The tenant of a request, by its bearer token or `x-api-key`. @throws ApiError 401 */
export function tenantOf(headers: IncomingHttpHeaders, tenants: ReadonlyMap<string, string> | null): string {
  if (tenants === null) return '';
  const bearer = /^Bearer +(\S+)$/i.exec(headers.authorization ?? '')?.[1];
  const key = headers['x-api-key'];
  const token = bearer ?? (typeof key === 'string' ? key : undefined);
  // Looked up by digest, so that how long it takes says nothing about tokens.
  const tenant = token === undefined ? undefined : tenants.get(hash('sha256', token, 'hex'));
  if (tenant !== undefined) return tenant;
  throw new ApiError(401, token === undefined ? 'send a bearer token' : 'the token is not known', {
    code: 'invalid_api_key',
    headers: { 'www-authenticate': 'Bearer' },
  });
}
