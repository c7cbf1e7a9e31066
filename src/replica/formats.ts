import type { Api } from '../openai/index.js';

/** What an answer is about. */
export interface Answer {
  readonly id: string;
  readonly model: string;
  readonly promptTokens: number;
  cachedTokens: number;
  outputTokens: number;
}

/** Stands for every token: nothing is computed. */
export const tokenText = 'emul ';

const fingerprint = 'emulated';
const created = 0;

function openAiUsage({ promptTokens, cachedTokens, outputTokens }: Answer): object {
  return {
    prompt_tokens: promptTokens,
    completion_tokens: outputTokens,
    total_tokens: promptTokens + outputTokens,
    prompt_tokens_details: { cached_tokens: cachedTokens },
  };
}

function itemUsage({ promptTokens, cachedTokens, outputTokens }: Answer): object {
  return {
    input_tokens: promptTokens,
    output_tokens: outputTokens,
    total_tokens: promptTokens + outputTokens,
    input_tokens_details: { cached_tokens: cachedTokens },
  };
}

function messagesUsage({ promptTokens, cachedTokens, outputTokens }: Answer): object {
  return {
    input_tokens: promptTokens - cachedTokens,
    cache_read_input_tokens: cachedTokens,
    output_tokens: outputTokens,
  };
}

/** The whole answer, of a request without a stream. */
export function wholeAnswer(api: Api, answer: Answer): object {
  const { id, model } = answer;
  const text = tokenText.repeat(answer.outputTokens);
  const common = { id, model, created, system_fingerprint: fingerprint };
  switch (api) {
    case 'completions':
      return {
        ...common,
        object: 'text_completion',
        choices: [{ index: 0, text, finish_reason: 'length', logprobs: null }],
        usage: openAiUsage(answer),
      };
    case 'chat':
      return {
        ...common,
        object: 'chat.completion',
        choices: [{ index: 0, message: { role: 'assistant', content: text }, finish_reason: 'length' }],
        usage: openAiUsage(answer),
      };
    case 'messages':
      return {
        id,
        model,
        type: 'message',
        role: 'assistant',
        content: [{ type: 'text', text }],
        stop_reason: 'max_tokens',
        usage: messagesUsage(answer),
      };
    case 'responses':
      return responseObject(answer, 'completed', text);
  }
}

function responseObject(answer: Answer, status: string, text: string): object {
  return {
    id: answer.id,
    object: 'response',
    model: answer.model,
    created_at: created,
    status,
    output: [
      {
        type: 'message',
        role: 'assistant',
        status,
        content: [{ type: 'output_text', text, annotations: [] }],
      },
    ],
    usage: status === 'completed' ? itemUsage(answer) : null,
  };
}

/** What stands before the first token of a stream. */
export function streamHead(api: Api, answer: Answer): string {
  if (api === 'messages') {
    const message = { id: answer.id, type: 'message', role: 'assistant', content: [], model: answer.model };
    return event('message_start', { message: { ...message, usage: messagesUsage(answer) } });
  }
  if (api === 'responses')
    return event('response.created', { response: responseObject(answer, 'in_progress', '') });
  return '';
}

export function streamToken(api: Api, { id, model }: Answer, index: number): string {
  const common = { id, created, model, system_fingerprint: fingerprint };
  switch (api) {
    case 'completions':
      return data({
        ...common,
        object: 'text_completion',
        choices: [{ index: 0, text: tokenText, finish_reason: null }],
      });
    case 'chat':
      return data({
        ...common,
        object: 'chat.completion.chunk',
        choices: [
          {
            index: 0,
            delta: index === 0 ? { role: 'assistant', content: tokenText } : { content: tokenText },
            finish_reason: null,
          },
        ],
      });
    case 'messages':
      return event('content_block_delta', { index: 0, delta: { type: 'text_delta', text: tokenText } });
    case 'responses':
      return event('response.output_text.delta', { output_index: 0, delta: tokenText });
  }
}

/** The end of a stream, with the usage where it is asked for or the API always has it. */
export function streamEnd(api: Api, answer: Answer, includeUsage: boolean): string {
  if (api === 'messages') {
    const delta = { delta: { stop_reason: 'max_tokens' }, usage: messagesUsage(answer) };
    return event('message_delta', delta) + event('message_stop', {});
  }
  if (api === 'responses') {
    const text = tokenText.repeat(answer.outputTokens);
    return event('response.completed', { response: responseObject(answer, 'completed', text) });
  }
  const object = api === 'chat' ? 'chat.completion.chunk' : 'text_completion';
  const common = { id: answer.id, created, model: answer.model, object };
  const usage = includeUsage ? data({ ...common, choices: [], usage: openAiUsage(answer) }) : '';
  return `${usage}data: [DONE]\n\n`;
}

function data(value: object): string {
  return `data: ${JSON.stringify(value)}\n\n`;
}

function event(type: string, value: object): string {
  return `event: ${type}\ndata: ${JSON.stringify({ type, ...value })}\n\n`;
}
