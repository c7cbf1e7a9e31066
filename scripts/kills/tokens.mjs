/** What a request generates, so that whoever sees a token can say whether it is right. */
export function tokenOf(request, index) {
  let hash = 2166136261 ^ index;
  for (let i = 0; i < request.length; i++) hash = Math.imul(hash ^ request.charCodeAt(i), 16777619);
  return hash >>> 0;
}
