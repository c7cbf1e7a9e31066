import { DualPathError } from '../errors/index.js';
import { requireAtMost, requireInteger, requireName } from './check.js';
import type { EngineState } from './ledger.js';
import type { EngineRole, ReadPolicy, RequestDescription } from './types.js';

/** What a whole request needs, in blocks, before its engines and read side are chosen. */
export interface Needs {
  readonly hitBlocks: number;
  readonly promptBlocks: number;
  readonly decodeBufferBlocks: number;
  readonly decodeHbmBlocks: number;
  readonly avoidSide: EngineRole | undefined;
}

export interface NeedRules {
  readonly blockTokens: number;
  readonly decodeSpareBlocks: number;
  readonly policy: ReadPolicy;
}

/** @throws INVALID_ARGUMENT for a request that contradicts itself */
export function checkRequest(description: RequestDescription, blockTokens: number): void {
  const { request, promptTokens, hitTokens, maxNewTokens, priority = 0 } = description;
  requireName('request', request);
  const of = `of request ${request}`;
  requireInteger(`promptTokens ${of}`, promptTokens, 1, 'a request has a prompt');
  requireInteger(`hitTokens ${of}`, hitTokens, 0, 'give the tokens that look-up found');
  requireInteger(`maxNewTokens ${of}`, maxNewTokens, 0, 'give the most tokens it may generate');
  requireInteger(`promptTokens + maxNewTokens ${of}`, promptTokens + maxNewTokens, 1, 'lower one of them');
  requireInteger(`priority ${of}`, priority, 0, 'give 0 to 255, the more the earlier');
  requireAtMost(`priority ${of}`, priority, 255, 'give 0 to 255, the more the earlier');
  if (hitTokens > promptTokens || hitTokens % blockTokens !== 0) {
    throw new DualPathError(
      'INVALID_ARGUMENT',
      `hitTokens ${of} is ${hitTokens}, but must be a multiple of blockTokens (${blockTokens}) up to ` +
        `promptTokens (${promptTokens}): count whole blocks that look-up found`,
      { request, hit_tokens: hitTokens, prompt_tokens: promptTokens, block_tokens: blockTokens },
    );
  }
}

export function needsOf(description: RequestDescription, rules: NeedRules): Needs {
  const { promptTokens, hitTokens, maxNewTokens, avoidSide } = description;
  const promptBlocks = Math.ceil(promptTokens / rules.blockTokens);
  return {
    hitBlocks: rules.policy === 'none' ? 0 : hitTokens / rules.blockTokens,
    promptBlocks,
    decodeBufferBlocks: promptBlocks + rules.decodeSpareBlocks,
    decodeHbmBlocks: Math.ceil((promptTokens + maxNewTokens) / rules.blockTokens),
    avoidSide,
  };
}

/** Blocks of HBM that a request takes on a PE: none where the PE's HBM is not accounted. */
export function prefillHbmBlocks(engine: EngineState, needs: Needs): number {
  return engine.capacity.hbmBlocks === 0 ? 0 : needs.promptBlocks;
}

export function freeBufferBlocks(engine: EngineState): number {
  return engine.capacity.bufferBlocks - engine.bufferBlocks;
}

export function freeHbmBlocks(engine: EngineState): number {
  return engine.capacity.hbmBlocks - engine.hbmBlocks;
}

/**
 * Whether an empty PE could hold a request.
 *
 * @param readsAll whether it must hold all hit blocks, or may leave them to the decode side
 */
export function prefillCanHold(engine: EngineState, needs: Needs, readsAll: boolean): boolean {
  const { bufferBlocks, hbmBlocks } = engine.capacity;
  return bufferBlocks >= (readsAll ? needs.hitBlocks : 0) && hbmBlocks >= prefillHbmBlocks(engine, needs);
}

/** Whether an empty DE could. */
export function decodeCanHold({ capacity }: EngineState, needs: Needs): boolean {
  return capacity.bufferBlocks >= needs.decodeBufferBlocks && capacity.hbmBlocks >= needs.decodeHbmBlocks;
}

/** Why no engine of `live` could ever hold a request; undefined if one of each role could. */
export function whyNever(
  request: string,
  needs: Needs,
  policy: ReadPolicy,
  live: (role: EngineRole) => readonly EngineState[],
): DualPathError | undefined {
  for (const role of ['prefill', 'decode'] as const) {
    if (live(role).length > 0) continue;
    return new DualPathError(
      'PEER_LOST',
      `request ${request} cannot run: no ${role} engine is left; start one and submit the request again`,
      { request, role },
    );
  }
  const readsAll = policy === 'prefill';
  if (!live('prefill').some((engine) => prefillCanHold(engine, needs, readsAll))) {
    return tooLarge(request, live('prefill'), 'prefill', readsAll ? needs.hitBlocks : 0, needs.promptBlocks);
  }
  if (!live('decode').some((engine) => decodeCanHold(engine, needs))) {
    return tooLarge(request, live('decode'), 'decode', needs.decodeBufferBlocks, needs.decodeHbmBlocks);
  }
  return undefined;
}

function tooLarge(
  request: string,
  engines: readonly EngineState[],
  role: EngineRole,
  bufferBlocks: number,
  hbmBlocks: number,
): DualPathError {
  const bufferLimit = engines.reduce((most, { capacity }) => Math.max(most, capacity.bufferBlocks), 0);
  const hbmLimit = engines.reduce((most, { capacity }) => Math.max(most, capacity.hbmBlocks), 0);
  return new DualPathError(
    'REQUEST_TOO_LARGE',
    `request ${request} needs ${bufferBlocks} buffer blocks and ${hbmBlocks} HBM blocks on one ${role} engine, ` +
      `which no engine has together: the most is ${bufferLimit} buffer blocks and ${hbmLimit} HBM blocks; ` +
      `raise bufferBlocks or hbmBlocks of the ${role} engines, or shorten the request`,
    {
      request,
      role,
      need_buffer_blocks: bufferBlocks,
      need_hbm_blocks: hbmBlocks,
      limit_buffer_blocks: bufferLimit,
      limit_hbm_blocks: hbmLimit,
    },
  );
}
