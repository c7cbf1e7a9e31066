import { DualPathError } from '../errors/index.js';
import type { Instance, InstanceOptions } from './instance.js';
import { routerLimits } from './limits.js';
import type { RequestInput } from './request.js';
import type { RouterOptions } from './router.js';

/** @throws INVALID_ARGUMENT unless the value is a number above 0 */
export function requirePositive(name: string, value: number): void {
  if (value > 0 && Number.isFinite(value)) return;
  throw new DualPathError('INVALID_ARGUMENT', `${name} is ${value}: give a number above 0`, {
    [name]: String(value),
  });
}

export function checkRouterOptions(options: RouterOptions): void {
  requirePositive('blockTokens', options.blockTokens);
  requirePositive('prefillSPerToken', options.prefillSPerToken);
  requirePositive('sloS', options.sloS);
  requirePositive('dispatchedTokensMax', options.dispatchedTokensMax);
  if (options.ageBoundS !== undefined) requirePositive('ageBoundS', options.ageBoundS);
  else if (options.queueOrder === 'longest-hit') {
    throw new DualPathError(
      'INVALID_ARGUMENT',
      'queueOrder longest-hit lets requests without hits starve: give ageBoundS, such as 30',
    );
  }
}

export function checkInstance(
  options: InstanceOptions,
  taken: ReadonlyMap<string, Instance>,
  blockTokens: number,
): void {
  if (typeof options.name !== 'string' || options.name === '' || taken.has(options.name)) {
    throw new DualPathError(
      'INVALID_ARGUMENT',
      `the instance name ${JSON.stringify(options.name)} is empty or taken: give every instance its own`,
      { instance: String(options.name) },
    );
  }
  requirePositive(`weight of ${options.name}`, options.weight ?? 1);
  if (!(options.cacheTokens >= blockTokens)) {
    throw new DualPathError(
      'INVALID_ARGUMENT',
      `cacheTokens of ${options.name} is ${options.cacheTokens}: give at least a block, ${blockTokens} tokens`,
      { instance: options.name, cache_tokens: String(options.cacheTokens) },
    );
  }
  if (taken.size >= routerLimits.instances) {
    throw new DualPathError(
      'CAPACITY_EXHAUSTED',
      `${options.name} would be instance ${taken.size + 1}, the limit is ${routerLimits.instances}`,
      { instance: options.name, limit: routerLimits.instances },
    );
  }
}

export function checkInput(input: RequestInput): void {
  const { firstBlock, blocks, promptTokens, keys } = input;
  const whole =
    Number.isInteger(firstBlock) && Number.isInteger(blocks) && Number.isSafeInteger(promptTokens);
  if (
    whole &&
    promptTokens >= 1 &&
    firstBlock >= 0 &&
    blocks >= 0 &&
    blocks <= routerLimits.blocksPerRequest &&
    2 * (firstBlock + blocks) <= keys.length
  ) {
    return;
  }
  throw new DualPathError(
    'INVALID_ARGUMENT',
    `request ${input.id}: ${promptTokens} tokens in blocks ${firstBlock} to ${firstBlock + blocks} of ${keys.length / 2} ` +
      `keys: give at least one token, two u32 a block, and at most ${routerLimits.blocksPerRequest} blocks`,
    { request: input.id, prompt_tokens: promptTokens, blocks },
  );
}
