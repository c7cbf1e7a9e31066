import { hash } from 'node:crypto';
import { ApiError } from './error.js';
import type { Api } from './paths.js';

/** What routing needs of a request. */
export interface CanonicalPrompt {
  readonly model: string;
  /** As the body names it beside the model (SGLang's `lora_path`); empty where it does not. */
  readonly adapter: string;
  readonly stream: boolean;
  readonly previousResponseId: string | null;
  /** The client names a data-parallel rank of its own. */
  readonly namesRank: boolean;
  readonly maxOutputTokens: number | null;
  /** What makes prompts unlike whatever their text: hashed before the first block. */
  readonly scope: string;
  /** The prompt in the order of the chat template, or its token ids. */
  readonly content: string | Uint32Array;
  /** Tokens besides: further prompts of a list, and of each image as many as `imageTokens`. */
  readonly extraTextBytes: number;
  readonly extraTokens: number;
}

/** What an image counts for, in tokens: models differ, and nothing in the request says. */
export const imageTokens = 576;

type Json = Record<string, unknown>;

/** Stand between parts, where a template has its own marks; no client text is likely to have them. */
const roleMark = '\u0001';
const partMark = '\u0002';

interface Draft {
  text: string;
  images: number;
}

/**
 * The prompt of a request: tools, system, messages, template options, in this order, since that is the order in which
 * templates put them before the model. Images and other attachments stand as digests.
 * @throws ApiError 400 for a request without a model or prompt
 */
export function canonicalPrompt(
  api: Api,
  body: Json,
  volatileLines: readonly RegExp[] = [],
): CanonicalPrompt {
  const model = text(body['model']);
  if (model === '') throw new ApiError(400, 'name a model: "model" is missing', { param: 'model' });
  const adapter = text(body['lora_path']);
  const salt = text(body['cache_salt']);
  const template = body['chat_template'] === undefined ? '' : digest(body['chat_template']);
  const common = {
    model,
    adapter,
    stream: body['stream'] === true,
    previousResponseId: text(body['previous_response_id']) || null,
    namesRank: body['data_parallel_rank'] !== undefined || body['routed_dp_rank'] !== undefined,
    maxOutputTokens: firstNumber(
      body['max_completion_tokens'],
      body['max_tokens'],
      body['max_output_tokens'],
    ),
  };
  const scope = scopeOf(model, adapter, salt, template);
  if (api === 'completions') return { ...common, ...completionPrompt(body['prompt'], scope) };
  const draft: Draft = { text: '', images: 0 };
  addOptional(draft, 'tools', body['tools']);
  addOptional(draft, 'documents', body['documents']);
  if (api === 'messages') addSystem(draft, body['system'], volatileLines);
  if (api === 'responses') addSystem(draft, body['instructions'], volatileLines);
  addMessages(draft, api, body, volatileLines);
  addOptional(draft, 'options', body['chat_template_kwargs']);
  addOptional(draft, 'format', body['response_format']);
  return {
    ...common,
    scope,
    content: draft.text,
    extraTextBytes: 0,
    extraTokens: draft.images * imageTokens,
  };
}

/** The scope of a prompt to `model` that says nothing else. */
export function plainScope(model: string): string {
  return scopeOf(model, '', '', '');
}

function scopeOf(...parts: [model: string, adapter: string, salt: string, template: string]): string {
  return JSON.stringify(parts);
}

type Content = Pick<CanonicalPrompt, 'scope' | 'content' | 'extraTextBytes' | 'extraTokens'>;

/** A string, strings, ids or lists of ids; of several the first is the key, all of them the weight. */
function completionPrompt(prompt: unknown, scope: string): Content {
  if (typeof prompt === 'string') return { scope, content: prompt, extraTextBytes: 0, extraTokens: 0 };
  if (!Array.isArray(prompt) || prompt.length === 0) throw noPrompt('prompt');
  const list = prompt as unknown[];
  const first = list[0];
  if (typeof first === 'string') {
    let extraTextBytes = 0;
    for (const each of list.slice(1)) {
      if (typeof each !== 'string') throw noPrompt('prompt');
      extraTextBytes += Buffer.byteLength(each);
    }
    return { scope, content: first, extraTextBytes, extraTokens: 0 };
  }
  const lists = Array.isArray(first) ? (list as unknown[][]) : [list];
  const content = idsOf(lists[0]);
  let extraTokens = 0;
  for (const each of lists.slice(1)) extraTokens += idsOf(each).length;
  return { scope, content, extraTextBytes: 0, extraTokens };
}

function idsOf(list: unknown): Uint32Array {
  if (!Array.isArray(list) || list.length === 0) throw noPrompt('prompt');
  const ids = new Uint32Array(list.length);
  for (let i = 0; i < list.length; i++) {
    const id: unknown = list[i];
    if (typeof id !== 'number' || !Number.isInteger(id) || id < 0 || id > 0xffffffff)
      throw noPrompt('prompt');
    ids[i] = id;
  }
  return ids;
}

function noPrompt(param: string): ApiError {
  const what =
    param === 'prompt'
      ? 'a string, strings, token ids or lists of token ids'
      : 'a list of messages, not empty';
  return new ApiError(400, `there is no prompt: "${param}" must be ${what}`, { param });
}

function addMessages(draft: Draft, api: Api, body: Json, volatileLines: readonly RegExp[]): void {
  const param = api === 'responses' ? 'input' : 'messages';
  const messages = body[param];
  if (typeof messages === 'string' && api === 'responses') {
    draft.text += `${roleMark}user${partMark}${messages}`;
    return;
  }
  if (!Array.isArray(messages) || messages.length === 0) throw noPrompt(param);
  for (const message of messages as unknown[]) {
    if (typeof message !== 'object' || message === null) throw noPrompt(param);
    const { role, content, ...rest } = message as Json;
    const name = text(role) || text(rest['type']);
    if (name === 'system' || name === 'developer') {
      addSystem(draft, content, volatileLines);
      continue;
    }
    draft.text += `${roleMark}${name}`;
    addContent(draft, content);
    for (const key of Object.keys(rest).sort()) {
      // Ids of calls are part of most templates, cache marks of none.
      if (key !== 'cache_control' && rest[key] !== null) addOptional(draft, key, rest[key]);
    }
  }
}

function addSystem(draft: Draft, system: unknown, volatileLines: readonly RegExp[]): void {
  if (system === undefined || system === null) return;
  const part: Draft = { text: '', images: 0 };
  addContent(part, system);
  for (const line of volatileLines) part.text = part.text.replace(line, '');
  draft.text += `${roleMark}system${part.text}`;
  draft.images += part.images;
}

function addContent(draft: Draft, content: unknown): void {
  if (typeof content === 'string') draft.text += partMark + content;
  else if (Array.isArray(content)) for (const part of content as unknown[]) addPart(draft, part);
  else if (content !== undefined && content !== null) draft.text += partMark + stringOf(content);
}

function addPart(draft: Draft, part: unknown): void {
  if (typeof part === 'string') {
    draft.text += partMark + part;
    return;
  }
  if (typeof part !== 'object' || part === null) return;
  const { cache_control: _mark, ...rest } = part as Json;
  if (typeof rest['text'] === 'string') {
    draft.text += partMark + rest['text'];
    return;
  }
  const type = text(rest['type']);
  if (/image|audio|video|file|document/.test(type)) {
    draft.images += /image/.test(type) ? 1 : 0;
    draft.text += `${partMark}${type}:${digest(rest)}`;
  } else draft.text += partMark + stringOf(rest);
}

function addOptional(draft: Draft, name: string, value: unknown): void {
  if (value === undefined || value === null) return;
  draft.text += `${roleMark}${name}${partMark}${typeof value === 'string' ? value : stringOf(value)}`;
}

function digest(value: unknown): string {
  return hash('sha256', stringOf(value), 'hex');
}

function stringOf(value: unknown): string {
  try {
    return JSON.stringify(value);
  } catch {
    throw new ApiError(400, 'the body is nested too deeply', { code: 'invalid_body' });
  }
}

function text(value: unknown): string {
  return typeof value === 'string' ? value : '';
}

function firstNumber(...values: unknown[]): number | null {
  const found = values.find((value) => typeof value === 'number' && Number.isInteger(value) && value >= 0);
  return typeof found === 'number' ? found : null;
}
