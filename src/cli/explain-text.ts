/** What `dualpath explain` prints for people. */
import {
  readReasons,
  type DecodeDecision,
  type PrefillDecision,
  type ReadDecision,
  type RequestDecisions,
  type TimedDecision,
} from '../scheduler/index.js';
import { formatCount, formatDuration, renderTable } from '../telemetry/index.js';

export interface ExplainedRequest extends RequestDecisions {
  /** Of a replay. */
  readonly mode?: string;
}

export function explainText({ request, mode, decisions, dropped }: ExplainedRequest): string {
  const startS = decisions[0]?.atS ?? 0;
  const lines = [`request ${request}${mode === undefined ? '' : `, mode ${mode}`}`];
  for (const decision of decisions) {
    lines.push('', `+${formatDuration(Math.max(0, decision.atS - startS))}  ${textOf(decision)}`.trimEnd());
  }
  if (dropped > 0) lines.push('', `${formatCount(dropped)} later decisions were not kept`);
  return `${lines.join('\n')}\n`;
}

function textOf(decision: TimedDecision): string {
  switch (decision.kind) {
    case 'submit': {
      const { promptTokens, hitTokens, maxNewTokens, ahead, tenant, priority, avoidSide } = decision;
      const more = [
        ...(tenant === undefined ? [] : [`tenant ${tenant}`]),
        ...(priority > 0 ? [`priority ${priority}`] : []),
        ...(avoidSide === undefined ? [] : [`not to be read on the ${avoidSide} side, which failed it`]),
      ];
      return (
        `submitted: ${formatCount(promptTokens)} prompt tokens, ${formatCount(hitTokens)} of them stored, up to ` +
        `${formatCount(maxNewTokens)} new ones; ${formatCount(ahead)} requests waited${more.map((text) => `; ${text}`).join('')}`
      );
    }
    case 'prefill':
      return prefillText(decision);
    case 'decode-group': {
      const rows = decision.candidates.map(({ group, tokens }) => [
        mark(group === decision.group, group),
        formatCount(tokens),
      ]);
      return `DE group ${decision.group}: the least tokens\n${renderTable({ head: ['group', 'tokens'], rows })}`;
    }
    case 'decode':
      return decodeText(decision);
    case 'read':
      return readText(decision);
    case 'wait': {
      const { cause, times, last } = decision;
      const why = last.kind === 'prefill' ? prefillText(last) : decodeText(last);
      return `waits (${cause}), found so ${formatCount(times)} times; the last time:\n${why}`;
    }
    case 'assigned': {
      const { prefillEngine, decodeEngine, side, admission, epoch } = decision.assignment;
      return `assigned to ${prefillEngine} and ${decodeEngine}, read side ${side}, admission ${admission}, epoch ${epoch}`;
    }
    case 'placed-anew':
      return `back to the waiting queue: ${decision.lostEngine} was lost before anybody had heard of the request`;
    case 'end':
      return decision.error === null
        ? 'ended well'
        : `ended with ${decision.error.code}: ${decision.error.message}`;
  }
}

function mark(chosen: boolean, name: string): string {
  return chosen ? `> ${name}` : `  ${name}`;
}

const yesNo = (value: boolean): string => (value ? 'yes' : 'no');

function prefillText({
  engine,
  classes,
  candidates,
  alphaS,
  betaTokens,
  bufferBlocks,
}: PrefillDecision): string {
  const { c1, c2, c3, lost } = classes;
  const beta = betaTokens === null ? 'no beta' : `beta ${formatCount(betaTokens)} tokens`;
  const rows = candidates.map((one) => [
    mark(one.engine === engine, one.engine),
    one.class,
    formatCount(one.tokens),
    formatDuration(one.readQueueS),
    formatCount(one.freeBufferBlocks),
    yesNo(one.fits),
  ]);
  const chosen =
    engine === undefined
      ? 'no PE may take it'
      : `PE ${engine}: the least tokens of the first class that fits`;
  return (
    `${chosen} (C1 ${c1}, C2 ${c2}, C3 ${c3}${lost > 0 ? `, lost ${lost}` : ''}; alpha ${formatDuration(alphaS)}, ${beta}; ` +
    `needs ${formatCount(bufferBlocks)} buffer blocks)\n` +
    renderTable({ head: ['PE', 'class', 'tok_e', 'read queue', 'free buffer', 'fits'], rows })
  );
}

const rules: Readonly<Record<DecodeDecision['rule'], string>> = {
  'fewest-requests-within-z': 'the fewest requests among those within Z',
  'least-tokens': 'nobody with the memory is within Z: the least tokens',
  'none-fits': 'no DE of the group has the memory now',
};

function decodeText(decision: DecodeDecision): string {
  const { engine, group, rule, zTokens, requestTokens, hbmBlocks, bufferBlocks, candidates } = decision;
  const rows = candidates.map((one) => [
    mark(one.engine === engine, one.engine),
    formatCount(one.requests),
    formatCount(one.tokens),
    formatCount(one.freeHbmBlocks),
    formatCount(one.freeBufferBlocks),
    yesNo(one.withinZ),
    yesNo(one.fits),
  ]);
  return (
    `DE ${engine ?? 'none'} of ${group}: ${rules[rule]} (Z ${formatCount(zTokens)} tokens, the request ` +
    `${formatCount(requestTokens)}; needs ${formatCount(hbmBlocks)} HBM and ${formatCount(bufferBlocks)} buffer blocks)\n` +
    renderTable({ head: ['DE', 'seq_e', 'tok_e', 'free HBM', 'free buffer', 'within Z', 'fits'], rows })
  );
}

function readText(decision: ReadDecision): string {
  const { side, reason, policy, hitBlocks, prefillReadBlocks, decodeReadBlocks, prefill, decode } = decision;
  const rows = ([prefill, decode] as const).map(({ engine, queueBlocks, finishS }, at) => [
    `${at === 0 ? 'prefill' : 'decode'}, ${engine}`,
    formatCount(queueBlocks),
    formatDuration(finishS),
    formatCount(at === 0 ? prefillReadBlocks : decodeReadBlocks),
  ]);
  return (
    `read side ${side} (policy ${policy}): ${readReasons[reason]}; ${formatCount(hitBlocks)} blocks\n` +
    renderTable({ head: ['side', 'blocks queued', 'done with all after', 'reads'], rows })
  );
}
