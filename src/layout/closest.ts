/** Help for misspelt names. */

/**
 * The candidate with the smallest edit distance to `word` (insert, delete, replace), or undefined when even that one
 * needs more edits than half of the word's characters. Words above 64 characters are never close.
 */
export function closest(word: string, candidates: readonly string[]): string | undefined {
  if (word.length > 64) {
    return undefined;
  }
  let best: string | undefined;
  let bestEdits = Math.floor(word.length / 2) + 1;
  for (const candidate of candidates) {
    const edits = editDistance(word.toLowerCase(), candidate.toLowerCase());
    if (edits < bestEdits) {
      best = candidate;
      bestEdits = edits;
    }
  }
  return best;
}

function editDistance(left: string, right: string): number {
  let previous = Array.from({ length: right.length + 1 }, (_, index) => index);
  for (let i = 1; i <= left.length; i++) {
    const current = [i];
    for (let j = 1; j <= right.length; j++) {
      const replaced = previous[j - 1]! + (left[i - 1] === right[j - 1] ? 0 : 1);
      current.push(Math.min(replaced, previous[j]! + 1, current[j - 1]! + 1));
    }
    previous = current;
  }
  return previous[right.length]!;
}
