/** The APIs whose prompts are understood. */
export type Api = 'completions' | 'chat' | 'messages' | 'responses';

const apis: ReadonlyMap<string, Api> = new Map([
  ['/v1/completions', 'completions'],
  ['/v1/chat/completions', 'chat'],
  ['/v1/messages', 'messages'],
  ['/v1/responses', 'responses'],
]);

/** Of a POST to this path, without its query; undefined for any other. */
export function apiOf(path: string): Api | undefined {
  return apis.get(path);
}
