/** Text to tokens and back, and conversations to prompts, as the model's own file says. */
import { createHash } from 'node:crypto';
import { Template } from '@huggingface/jinja';
import { Tokenizer } from '@huggingface/tokenizers';

/** ChatML, for models without a file. */
const chatMl =
  "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n'}}" +
  "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";
const specials = ['<|endoftext|>', '<|im_start|>', '<|im_end|>', '<|pad|>'];

/** How GPT-2 writes bytes as characters: those that can be seen as they are, the others moved out of the way. */
function byteCharacters() {
  const seen = (byte) => (byte > 32 && byte < 127) || (byte > 160 && byte !== 173);
  let moved = 256;
  return Array.from({ length: 256 }, (_, byte) => String.fromCodePoint(seen(byte) ? byte : moved++));
}

/** The parts of a tokenizer.json that a GGUF file has in other words. */
function fromGguf(metadata) {
  const get = (key) => metadata[`tokenizer.ggml.${key}`];
  if (get('model') !== 'gpt2')
    throw new Error(`a tokenizer of kind ${get('model')}; gpt2 (byte-level BPE) is read`);
  const tokens = get('tokens');
  const types = get('token_type');
  return {
    tokens,
    special: tokens.flatMap((content, id) => (types[id] === 3 ? [{ id, content }] : [])),
    merges: get('merges').map((pair) => pair.split(' ')),
    digits: get('pre') === 'smollm',
    end: get('eos_token_id'),
    template: metadata['tokenizer.chat_template'] ?? chatMl,
  };
}

function bytesOnly() {
  return {
    tokens: [...specials, ...byteCharacters()],
    special: specials.map((content, id) => ({ id, content })),
    ...{ merges: [], digits: false, end: 2, template: chatMl },
  };
}

const flags = { single_word: false, lstrip: false, rstrip: false, normalized: false, special: true };

function tokenizerJson({ tokens, special, merges, digits }) {
  const byteLevel = { type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: true };
  return {
    ...{ version: '1.0', truncation: null, padding: null, normalizer: null, post_processor: null },
    added_tokens: special.map((token) => ({ ...token, ...flags })),
    pre_tokenizer: {
      type: 'Sequence',
      pretokenizers: [...(digits ? [{ type: 'Digits', individual_digits: true }] : []), byteLevel],
    },
    decoder: byteLevel,
    model: {
      ...{ type: 'BPE', dropout: null, unk_token: null, continuing_subword_prefix: null },
      ...{ end_of_word_suffix: null, fuse_unk: false, byte_fallback: false, ignore_merges: false, merges },
      vocab: Object.fromEntries(tokens.map((token, id) => [token, id])),
    },
  };
}

/** Replies whose tokens are remembered. */
const maxReplies = 4096;

export class ChatTokenizer {
  #tokenizer;
  #template;
  /** The tokens of replies by the conversation that they end: encoding their text again need not give the same. */
  #replies = new Map();

  /** @param metadata of a GGUF file; without it each byte is a token */
  constructor(metadata) {
    const parts = metadata === undefined ? bytesOnly() : fromGguf(metadata);
    const end = parts.tokens[parts.end];
    this.#tokenizer = new Tokenizer(tokenizerJson(parts), { model_max_length: 1e9, eos_token: end });
    this.#template = new Template(parts.template);
    this.endToken = parts.end;
  }

  encode(text) {
    return this.#tokenizer.encode(text, { add_special_tokens: false }).ids;
  }

  decode(tokens) {
    return tokens.length === 0 ? '' : this.#tokenizer.decode([...tokens], { skip_special_tokens: true });
  }

  /** A conversation as the tokens of a prompt; replies that came from here have the tokens that they had then. */
  prompt(messages) {
    const known = messages.map((message, i) =>
      message.role === 'assistant' ? this.#replies.get(keyOf(messages.slice(0, i + 1))) : undefined,
    );
    // Where a known reply stands, the template is given a mark, which is then replaced by its tokens.
    const mark = (i) => `\u{F0000}${i}\u{F0001}`;
    const marked = messages.map((message, i) =>
      known[i] === undefined ? message : { ...message, content: mark(i) },
    );
    const text = this.#template.render({ messages: marked, add_generation_prompt: true });
    const pieces = text.split(/\u{F0000}(\d+)\u{F0001}/u);
    return Uint32Array.from(
      pieces.flatMap((piece, i) =>
        i % 2 === 1 ? known[Number(piece)] : piece === '' ? [] : this.encode(piece),
      ),
    );
  }

  remember(messages, reply, tokens) {
    this.#replies.set(keyOf([...messages, { role: 'assistant', content: reply }]), [...tokens]);
    if (this.#replies.size > maxReplies) this.#replies.delete(this.#replies.keys().next().value);
  }
}

function keyOf(messages) {
  const said = messages.map(({ role, content }) => [role, content]);
  return createHash('sha256').update(JSON.stringify(said)).digest('base64');
}
