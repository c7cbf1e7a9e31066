/** Where a member of a JSON object stands in its text. */
export interface MemberRange {
  readonly name: string;
  /** From the quote of the name to the end of the value. */
  readonly start: number;
  readonly end: number;
}

const quote = 34;
const backslash = 92;

function skipSpace(text: Buffer, at: number): number {
  while (text[at] === 32 || text[at] === 10 || text[at] === 13 || text[at] === 9) at++;
  return at;
}

/** `at` is at the opening quote; the place behind the closing one. */
function skipString(text: Buffer, at: number): number {
  for (at++; at < text.length && text[at] !== quote; at++) if (text[at] === backslash) at++;
  return at + 1;
}

function skipValue(text: Buffer, at: number): number {
  let depth = 0;
  while (at < text.length) {
    const byte = text[at]!;
    if (byte === quote) {
      at = skipString(text, at);
      continue;
    }
    if (byte === 123 || byte === 91) depth++;
    else if (byte === 125 || byte === 93) {
      if (depth === 0) return at;
      depth--;
    } else if (byte === 44 && depth === 0) return at;
    at++;
  }
  return at;
}

/** The members of a JSON object at its top level, in order, a name as often as it occurs. The text has been parsed. */
export function memberRanges(text: Buffer): MemberRange[] {
  const found: MemberRange[] = [];
  let at = skipSpace(text, 0) + 1;
  for (;;) {
    at = skipSpace(text, at);
    if (text[at] !== quote) return found;
    const start = at;
    at = skipString(text, at);
    const name = JSON.parse(text.toString('utf8', start, at)) as string;
    at = skipSpace(text, at) + 1;
    at = skipValue(text, at);
    found.push({ name, start, end: at });
    if (text[at] !== 44) return found;
    at++;
  }
}

/** The object without the members of a name; every other byte stays as it was. */
export function withoutMember(text: Buffer, name: string): Buffer {
  const members = memberRanges(text);
  const kept = members.filter((member) => member.name !== name);
  if (kept.length === members.length) return text;
  const parts: Buffer[] = [Buffer.from('{')];
  for (const [i, { start, end }] of kept.entries()) {
    if (i > 0) parts.push(Buffer.from(','));
    parts.push(text.subarray(start, end));
  }
  parts.push(Buffer.from('}'));
  return Buffer.concat(parts);
}

/** The object with a whole number as its first member; every other byte stays as it was. */
export function withMember(text: Buffer, name: string, value: number): Buffer {
  const open = skipSpace(text, 0) + 1;
  const isEmpty = text[skipSpace(text, open)] === 125;
  const member = `${JSON.stringify(name)}:${value}${isEmpty ? '' : ','}`;
  return Buffer.concat([text.subarray(0, open), Buffer.from(member), text.subarray(open)]);
}
