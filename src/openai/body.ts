import { ApiError } from './error.js';

/**
 * A JSON object from a request's body.
 * @throws ApiError 400 for anything else, with the place of the fault
 */
export function parseBody(body: Buffer): Record<string, unknown> {
  if (body.length === 0) throw bad('the body is empty: send a JSON object');
  let value: unknown;
  try {
    value = JSON.parse(body.toString('utf8'));
  } catch (error) {
    throw bad(`the body is not JSON: ${error instanceof Error ? error.message.slice(0, 200) : 'malformed'}`);
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw bad('the body is JSON, but no object: send one with "model" and a prompt');
  }
  return value as Record<string, unknown>;
}

function bad(message: string): ApiError {
  return new ApiError(400, message, { code: 'invalid_body' });
}
